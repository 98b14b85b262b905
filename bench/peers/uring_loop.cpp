// The bare io_uring loop as a program: what the disk gives to anybody, for the storage engine to be held against.
//
//   uring_loop FOLDER [BYTES]
//
// Preallocates a nameless file in FOLDER and prints the rates, in GB/s, of its first write, an overwrite and a read.
#include <cstdint>
#include <cstdio>
#include <exception>
#include <string>

#include <spillway/app/bench/uring_loop.hpp>
#include <spillway/offload/aligned_block.hpp>
#include <spillway/offload/swap_file.hpp>

int main(int argc, char** argv) {
  if (argc < 2 || argc > 3) {
    std::fprintf(stderr, "usage: uring_loop FOLDER [BYTES]\n");
    return 2;
  }
  try {
    using spillway::app::UringLoopOptions;
    UringLoopOptions options;
    options.bytes =
        argc > 2 ? std::stoull(argv[2]) / options.block_bytes * options.block_bytes : std::uint64_t{2} << 30;
    const spillway::offload::AlignedBlock memory(options.depth * options.block_bytes);
    spillway::offload::SwapFile file(argv[1], [](const std::string& line) { std::printf("%s\n", line.c_str()); });
    file.grow(options.bytes);
    options.fd = file.fd();
    for (const auto& [name, write] :
         {std::pair("first write", true), std::pair("overwrite", true), std::pair("read", false)}) {
      options.write = write;
      const double seconds = spillway::app::run_uring_loop(options, memory.bytes());
      std::printf("%-12s %.2f GB/s\n", name, static_cast<double>(options.bytes) / seconds / 1e9);
    }
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "uring_loop: %s\n", error.what());
    return 1;
  }
}
