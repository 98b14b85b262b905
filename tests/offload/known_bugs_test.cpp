// Bugs that others shipped, as far as they concern files, engines and buffers (others stand beside what they test).
// Rows are those of docs/known_bugs.md.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include <spillway/offload/error.hpp>
#include <spillway/offload/tiers.hpp>

#include "offload/engine_fixture.hpp"
#include "store_fixture.hpp"
#include "support/property.hpp"
#include "support/temp_dir.hpp"
#include "support/tiny_disk.hpp"

namespace spillway::offload::known_bugs_test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;

void ignore(const std::string& /*line*/) {}

class OverRealEngines : public testing::TestWithParam<EngineChoice> {
 protected:
  [[nodiscard]] std::shared_ptr<Tiers> tiers() const {
    return std::make_shared<Tiers>(
        TiersOptions{.nvme_path = folder_.path().string(), .engine = GetParam(), .log = ignore});
  }

 private:
  test::TempDir folder_;
};

INSTANTIATE_TEST_SUITE_P(Engines, OverRealEngines, testing::Values(EngineChoice::kAuto, EngineChoice::kThreads),
                         [](const auto& test) { return test.param == EngineChoice::kAuto ? "Auto" : "Threads"; });

// Row 2: the last part of a block was never written where its length was no multiple of 512.
TEST_P(OverRealEngines, BringBackEveryLengthFromMemoryAtAnyAddress) {
  const AlignedBlock source = test::filled_block(4 * kMiB, 1);
  test::for_random_seeds(3, [&](test::Random& random) {
    struct Written {
      BlockId id;
      std::span<const std::byte> contents;
    };
    BlockStore store(tiers(), {.name = "lengths", .slot_bytes = 3 * kMiB, .disk_bytes = 48 * kMiB});
    std::vector<Written> blocks;
    for (int i = 0; i < 14; ++i) {
      const std::uint64_t bytes = random.between(1, 3 * kMiB);
      blocks.push_back({store.add(bytes, Tier::kDisk, "block " + std::to_string(i)),
                        source.bytes().subspan(random.below(kPageBytes), bytes)});
    }
    for (const Written& block : blocks) {
      const Lease lease = store.acquire(block.id, Access::kOverwrite);
      std::memcpy(lease.bytes().data(), block.contents.data(), block.contents.size());
    }
    for (const Written& block : blocks) {
      const Lease lease = store.acquire(block.id, Access::kRead);
      ASSERT_TRUE(test::same(lease.bytes(), block.contents));
    }
  });
}

// Row 6: waiting with nothing to wait for ended the process.
TEST_P(OverRealEngines, ReturnAtOnceWhereThereIsNothingToWaitFor) {
  const auto shared = tiers();
  shared->engine().drain(std::chrono::milliseconds(0));
  test::StreamedStore streamed(shared, 2, kPageBytes);
  streamed.store.flush();
  streamed.store.begin({}, Access::kRead);
  streamed.store.flush();
  shared->engine().drain(std::chrono::milliseconds(0));
}

std::uint64_t resident_bytes() {
  std::uint64_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages >> pages;
  return pages * static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
}

std::size_t open_files() {
  const std::filesystem::directory_iterator entries("/proc/self/fd");
  return static_cast<std::size_t>(std::distance(begin(entries), end(entries)));
}

// Row 12: every pipelined write leaked its buffers.
TEST_P(OverRealEngines, TakeNoMoreMemoryAfterTwoHundredPassesThanAfterThree) {
  test::StreamedStore streamed(tiers(), 12, 256 * 1024, 4);
  std::uint64_t memory = 0;
  std::size_t files = 0;
  for (int pass = 0; pass < 200; ++pass) {
    streamed.store.begin(streamed.ids, Access::kReadWrite);
    for (const BlockId id : streamed.ids) {
      const Lease lease = streamed.store.acquire(id, Access::kReadWrite);
      std::memset(lease.bytes().data(), pass, lease.bytes().size());
    }
    if (pass == 3) {
      memory = resident_bytes();
      files = open_files();
    }
  }
  streamed.store.flush();
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // They keep freed memory for a while.
  EXPECT_LE(resident_bytes(), memory + memory / 100 + kMiB);
#endif
  EXPECT_EQ(open_files(), files);
}

// Row 3: a full disk showed as a shorter file at the next read, and ended the process.
TEST(FullDisk, IsRefusedAtConstructionWithPathWantedFreeAndMissing) {
  if (const auto why = test::TinyDisk::unavailable(test::TinyDiskKind::Ext4)) {
    GTEST_SKIP() << *why;
  }
  const test::TinyDisk disk(test::TinyDiskKind::Ext4, 64 * kMiB);
  const auto tiers = std::make_shared<Tiers>(TiersOptions{.nvme_path = disk.path().string(), .log = ignore});
  for (int round = 0; round < 2; ++round) {
    try {
      const BlockStore store(tiers, {.name = "state", .slot_bytes = kMiB, .disk_bytes = 128 * kMiB});
      FAIL() << "128 MiB do not fit in 64";
    } catch (const OutOfSpace& error) {
      EXPECT_THAT(error.what(), AllOf(HasSubstr(disk.path().string()), HasSubstr("128 MiB wanted"), HasSubstr(" free"),
                                      HasSubstr(" missing")));
    }
    EXPECT_EQ(tiers->host().used_bytes() + tiers->disk().used_bytes(), 0U);
  }
  test::StreamedStore smaller(tiers, 20, 2 * kMiB);  // What was tried took nothing for good.
  smaller.fill(1);
  smaller.store.flush();
}

}  // namespace
}  // namespace spillway::offload::known_bugs_test
