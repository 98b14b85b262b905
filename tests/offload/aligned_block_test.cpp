#include <spillway/offload/aligned_block.hpp>

#include <gtest/gtest.h>

#include <sys/mman.h>

#include <algorithm>
#include <fstream>
#include <limits>
#include <string>
#include <utility>

#include <spillway/offload/error.hpp>
#include <spillway/offload/tier.hpp>

namespace spillway::offload::aligned_block_test {
namespace {

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;

std::string huge_page_mode() {
  std::ifstream file("/sys/kernel/mm/transparent_hugepage/enabled");
  std::string line;
  std::getline(file, line);
  return line;
}

std::uint64_t available_memory() {
  std::ifstream file("/proc/meminfo");
  for (std::string key; file >> key;) {
    std::uint64_t kibibytes = 0;
    if (key == "MemAvailable:" && file >> kibibytes) {
      return kibibytes * 1024;
    }
  }
  return 0;
}

TEST(AlignedBlock, IsZeroedAlignedAndAsLongAsAskedFor) {
  const AlignedBlock block(3 * kMiB + 5);
  EXPECT_EQ(block.bytes().size(), 3 * kMiB + 5);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(block.bytes().data()) % (2 * kMiB), 0U);
  EXPECT_TRUE(std::all_of(block.bytes().begin(), block.bytes().end(), [](std::byte b) { return b == std::byte{0}; }));
}

TEST(AlignedBlock, IsReallyOnHugePagesWhereTheKernelHasThem) {
  const std::string mode = huge_page_mode();
  if (mode.empty() || mode.find("[never]") != std::string::npos) {
    GTEST_SKIP() << "transparent huge pages are off here: '" << mode << "'";
  }
  const AlignedBlock block(64 * kMiB);
  // The kernel may be short of contiguous memory; then a part stays on small pages. Half is what a control without
  // the alignment or the advice never reaches.
  EXPECT_GE(block.huge_page_bytes(), 32 * kMiB);
}

TEST(AlignedBlock, TakesUpTheBytesAskedForAndNoPowerOfTwo) {
  // 1.2 GiB is where rounding to a power of two would cost 0.8 GiB; less where memory is short.
  const std::uint64_t wanted = available_memory() > 3072 * kMiB ? 1228 * kMiB + 4096 : 76 * kMiB + 4096;
  const AlignedBlock block(wanted);
  EXPECT_GE(block.resident_bytes(), wanted) << "all of it is touched";
  EXPECT_LE(block.resident_bytes(), wanted + 2 * kMiB);
}

TEST(AlignedBlock, IsEmptyAfterAMove) {
  AlignedBlock first(4096);
  const std::byte* data = first.bytes().data();
  AlignedBlock second(std::move(first));
  EXPECT_TRUE(first.bytes().empty());
  EXPECT_EQ(second.bytes().data(), data);
  AlignedBlock third(8192);
  third = std::move(second);
  EXPECT_EQ(third.bytes().data(), data);
  EXPECT_EQ(third.bytes().size(), 4096U);
}

TEST(AlignedBlock, IsEmptyForNoBytes) {
  EXPECT_TRUE(AlignedBlock().bytes().empty());
  EXPECT_TRUE(AlignedBlock(0).bytes().empty());
  EXPECT_EQ(AlignedBlock().huge_page_bytes(), 0U);
}

TEST(AlignedBlock, SaysHowMuchMemoryThereWasNotAndWhatToDo) {
  for (const std::uint64_t bytes : {std::uint64_t{1} << 60, std::numeric_limits<std::uint64_t>::max()}) {
    try {
      const AlignedBlock block(bytes);
      FAIL() << "there is no machine with that much memory";
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find("host_bytes"), std::string::npos) << error.what();
    }
  }
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // They report the fault in their own way.
TEST(AlignedBlockDeathTest, EndsTheProcessThatRunsPastItsBounds) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const AlignedBlock block(kPageBytes);
  auto* data = const_cast<volatile std::byte*>(block.bytes().data());
  EXPECT_EXIT(*(data + kPageBytes) = std::byte{1}, testing::KilledBySignal(SIGSEGV), "");
  EXPECT_EXIT(*(data - 1) = std::byte{1}, testing::KilledBySignal(SIGSEGV), "");
}
#endif

}  // namespace
}  // namespace spillway::offload::aligned_block_test
