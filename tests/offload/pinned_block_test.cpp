#include <spillway/offload/pinned_block.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

namespace spillway::offload::pinned_block_test {
namespace {

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;

std::uint64_t status_kibibytes(const std::string& field) {
  std::ifstream status("/proc/self/status");
  for (std::string key; status >> key;) {
    std::uint64_t kibibytes = 0;
    if (key == field + ":" && status >> kibibytes) {
      return kibibytes;
    }
  }
  return 0;
}

// Row 34 of docs/known_bugs.md.
TEST(PinnedBlock, CostsWhatWasAskedForAndNoPowerOfTwo) {
  // 130 MiB would become 256 in a pool that rounds up. Two threads touch it.
  const std::uint64_t wanted = 130 * kMiB + 4096;
  for (const bool pin : {false, true}) {
    const std::uint64_t before = status_kibibytes("VmRSS");
    const PinnedBlock block(wanted, pin);
    const std::uint64_t grown = (status_kibibytes("VmRSS") - before) * 1024;
    EXPECT_EQ(block.bytes().size(), wanted);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // They keep memory of their own beside it.
    EXPECT_GE(grown + 2 * kMiB, wanted) << "all of it is touched";
    EXPECT_LE(grown, wanted + 2 * kMiB);
#endif
    EXPECT_TRUE(std::all_of(block.bytes().begin(), block.bytes().end(), [](std::byte b) { return b == std::byte{0}; }));
  }
}

// Row 33 of docs/known_bugs.md: the wish not to lock was ignored, and where memory could not be locked all ended.
TEST(PinnedBlock, IsNotPageLockedWhereThatIsNotWanted) {
  const PinnedBlock block(kMiB, false);
  EXPECT_FALSE(block.pinned());
  EXPECT_TRUE(block.note().empty());
}

// Row 33, too.
TEST(PinnedBlock, WorksPageLockedOrNot) {
  PinnedBlock block(3 * kMiB, true);
  EXPECT_TRUE(block.pinned() || !block.bytes().empty());
  std::fill(block.bytes().begin(), block.bytes().end(), std::byte{7});
  const std::byte* const data = block.bytes().data();
  PinnedBlock moved(std::move(block));
  EXPECT_TRUE(block.bytes().empty());  // NOLINT(bugprone-use-after-move): that is what is tested.
  EXPECT_FALSE(block.pinned());
  EXPECT_EQ(moved.bytes().data(), data);
  block = std::move(moved);
  EXPECT_EQ(block.bytes().data(), data);
  EXPECT_EQ(block.bytes().back(), std::byte{7});
}

}  // namespace
}  // namespace spillway::offload::pinned_block_test
