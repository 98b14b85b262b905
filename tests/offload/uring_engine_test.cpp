// What only the io_uring engine has: registered memory.
#include <spillway/offload/uring_engine.hpp>

#include <gtest/gtest.h>

#include "offload/engine_fixture.hpp"

namespace spillway::test::uring_engine_test {
namespace {

using offload::FileId;
using offload::kPageBytes;

constexpr std::uint64_t kMebibyte = std::uint64_t{1} << 20;

TEST(RegisteredMemory, IsSaidToBeUsedOnlyWhenThereIsSome) {
  const auto engine = offload::make_uring_engine({});
  EXPECT_FALSE(engine->info().fixed_buffers);
  const offload::AlignedBlock memory(kMebibyte);
  engine->register_memory(memory.bytes());
  EXPECT_TRUE(engine->info().fixed_buffers);
  EXPECT_EQ(engine->info().note, "");
  engine->unregister_memory(memory.bytes());
  EXPECT_FALSE(engine->info().fixed_buffers);
}

// The kernel registers no more than 1 GiB at once; a chunk may lie across the seam of two pieces.
TEST(RegisteredMemory, MayBeLargerThanTheKernelTakesAtOnce) {
  constexpr std::uint64_t kSeam = std::uint64_t{1} << 30;
  constexpr std::uint64_t kBytes = 8 * kMebibyte;
  ScratchFile scratch(kBytes);
  const offload::AlignedBlock memory(kSeam + kBytes);
  const offload::AlignedBlock data = filled_block(kBytes, 1);
  const auto engine = offload::make_uring_engine({});
  const FileId file = engine->register_file(scratch.file.fd(), "scratch file");
  engine->register_memory(memory.bytes());
  EXPECT_TRUE(engine->info().fixed_buffers) << engine->info().note;
  const std::span<std::byte> across = memory.bytes().subspan(kSeam - kBytes / 2 - 3 * kPageBytes, kBytes);
  std::copy(data.bytes().begin(), data.bytes().end(), across.begin());
  engine->submit(request(kWrite, file, 0, across)).wait(kLong);
  std::fill(across.begin(), across.end(), std::byte{0});
  engine->submit(request(kRead, file, 0, across)).wait(kLong);
  EXPECT_TRUE(same(across, data.bytes()));
}

TEST(RegisteredMemory, CanBeGivenBackInAnyOrderAndTakenAgain) {
  const offload::AlignedBlock memory(64 * kPageBytes);
  ScratchFile scratch(64 * kPageBytes);
  const auto engine = offload::make_uring_engine({.block_bytes = kPageBytes});
  const FileId file = engine->register_file(scratch.file.fd(), "scratch file");
  for_random_seeds(20, [&](Random& random) {
    const auto page = [&](std::uint64_t i) { return memory.bytes().subspan(i * kPageBytes, kPageBytes); };
    std::vector<std::uint64_t> registered;
    for (int step = 0; step < 50; ++step) {
      if (registered.empty() || random.chance(1, 2)) {
        const std::uint64_t i = random.below(64);
        if (std::find(registered.begin(), registered.end(), i) == registered.end()) {
          engine->register_memory(page(i));
          registered.push_back(i);
        }
      } else {
        const auto at = registered.begin() + static_cast<std::ptrdiff_t>(random.below(registered.size()));
        engine->unregister_memory(page(*at));
        registered.erase(at);
      }
      engine->submit(request(random.chance(1, 2) ? kWrite : kRead, file, 0, memory.bytes())).wait(kLong);
    }
    for (const std::uint64_t i : registered) {
      engine->unregister_memory(page(i));
    }
    ASSERT_FALSE(engine->info().fixed_buffers);
  });
}

}  // namespace
}  // namespace spillway::test::uring_engine_test
