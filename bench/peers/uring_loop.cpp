// The bare io_uring loop as a program: what the disk gives to anybody, for the storage engine to be held against.
//
//   uring_loop FOLDER [BYTES]
//
// Preallocates a nameless file in FOLDER and prints the rates, in GB/s, of its first write, an overwrite, a read, and
// half of each.
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
    using spillway::app::IoDirection;
    spillway::app::IoJob job;
    job.bytes = argc > 2 ? std::stoull(argv[2]) / job.block_bytes * job.block_bytes : std::uint64_t{2} << 30;
    const spillway::offload::AlignedBlock memory(job.depth * job.block_bytes);
    spillway::offload::SwapFile file(argv[1], [](const std::string& line) { std::printf("%s\n", line.c_str()); });
    file.grow(job.bytes);
    job.fd = file.fd();
    for (const auto& [name, direction] :
         {std::pair("first write", IoDirection::kWrite), std::pair("overwrite", IoDirection::kWrite),
          std::pair("read", IoDirection::kRead), std::pair("mix", IoDirection::kMix)}) {
      job.direction = direction;
      const spillway::app::IoCost cost = spillway::app::run_uring_loop(job, memory.bytes());
      const double gigabytes = static_cast<double>(job.bytes) / 1e9;
      std::printf("%-12s %.2f GB/s, %.4f CPU s/GB\n", name, gigabytes / cost.seconds, cost.cpu_s / gigabytes);
    }
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "uring_loop: %s\n", error.what());
    return 1;
  }
}
