#include <spillway/offload/tiers.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sys/statvfs.h>

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <spillway/offload/error.hpp>

#include "store_fixture.hpp"
#include "support/temp_dir.hpp"
#include "support/tiny_disk.hpp"

namespace spillway::offload::tiers_test {
namespace {

using test::MemoryEngine;
using test::MemoryTiers;

constexpr std::uint64_t kPage = kPageBytes;

TEST(Tiers, TakesOneFolderAsTextOrSeveralAsAList) {
  EXPECT_THAT(TiersOptions{.nvme_path = "a"}.nvme_path.folders(), testing::ElementsAre("a"));
  EXPECT_THAT(TiersOptions{.nvme_path = std::string("a")}.nvme_path.folders(), testing::ElementsAre("a"));
  EXPECT_TRUE(TiersOptions{.nvme_path = ""}.nvme_path.empty());
  const std::vector<std::string> two{"a", "b"};
  EXPECT_EQ(TiersOptions{.nvme_path = two}.nvme_path.folders(), two);
}

TEST(Tiers, HasNoDiskWithoutAPathAndNamesTheSettingWhenAskedForSome) {
  Tiers tiers({.host_bytes = 100});
  EXPECT_FALSE(tiers.has_disk());
  try {
    static_cast<void>(tiers.take_swap(kPage, "bank"));
    FAIL() << "there is no disk";
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), testing::AllOf(testing::HasSubstr("bank"), testing::HasSubstr("offload.nvme_path")));
  }
}

TEST(Tiers, GivesEveryClientARangeOfItsOwnAndReservesIt) {
  const MemoryTiers memory(MemoryEngine::Ending::kAtOnce, {.disk_bytes = 10 * kPage});
  Tiers& tiers = *memory.tiers;
  auto first = tiers.take_swap(2 * kPage + 1, "state");
  const auto second = tiers.take_swap(kPage, "bank");
  EXPECT_EQ(first.bytes, 3 * kPage);
  EXPECT_EQ(second.offset, 3 * kPage);
  EXPECT_EQ(tiers.disk().used_bytes(), 4 * kPage);
  tiers.give_back_swap(std::move(first));
  EXPECT_EQ(tiers.disk().used_bytes(), kPage);
  EXPECT_EQ(tiers.take_swap(3 * kPage, "again").offset, 0U) << "space that came back is used before the file grows";
}

TEST(Tiers, RefusesGrowthBeyondTheBudgetWhereOnlyPiecesAreFree) {
  const MemoryTiers memory(MemoryEngine::Ending::kAtOnce, {.disk_bytes = 6 * kPage});
  Tiers& tiers = *memory.tiers;
  auto a = tiers.take_swap(2 * kPage, "a");
  const auto b = tiers.take_swap(2 * kPage, "b");
  auto c = tiers.take_swap(2 * kPage, "c");
  tiers.give_back_swap(std::move(a));
  tiers.give_back_swap(std::move(c));
  try {
    static_cast<void>(tiers.take_swap(3 * kPage, "d"));  // Within the reservations, but not in one piece.
    FAIL() << "the file would exceed the budget";
  } catch (const BudgetExceeded& error) {
    EXPECT_THAT(error.what(), testing::AllOf(testing::HasSubstr("lie in pieces"), testing::HasSubstr("disk_bytes")));
  }
  EXPECT_EQ(tiers.disk().used_bytes(), 2 * kPage) << "a refusal leaves nothing reserved";
}

TEST(Tiers, PreallocatesSwapSpaceInAFolderThatStaysEmpty) {
  const test::TempDir folder;
  std::vector<std::string> lines;
  Tiers tiers({.nvme_path = folder.path().string(), .log = [&](const std::string& line) { lines.push_back(line); }});
  ASSERT_TRUE(tiers.has_disk());
  const auto space = tiers.take_swap(1 << 20, "state");
  EXPECT_EQ(tiers.disk().used_bytes(), std::uint64_t{1} << 20);
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

// Placement never changes a byte: one store over one, two and three folders, with shares of every kind.
TEST(Tiers, GivesAStoreTheSameBytesOverAnyNumberOfFolders) {
  for (const std::vector<unsigned>& weights : {std::vector<unsigned>{1}, {1, 1}, {7, 2}, {1, 1, 1}, {5, 1, 3}}) {
    std::vector<test::TempDir> folders(weights.size());
    std::vector<std::string> paths;
    for (const test::TempDir& folder : folders) {
      paths.push_back(folder.path().string());
    }
    const auto tiers = std::make_shared<Tiers>(TiersOptions{.nvme_path = paths,
                                                            .nvme_weights = weights,
                                                            .aio = {.block_bytes = 64 * 1024, .queue_depth = 8},
                                                            .log = [](const std::string&) {}});
    test::StreamedStore streamed(tiers, 12, (1 << 20) + 77);
    for (const std::uint8_t first : {std::uint8_t{1}, std::uint8_t{101}}) {
      streamed.fill(first);
      streamed.store.begin(streamed.ids, Access::kRead);
      for (std::size_t i = 0; i < streamed.ids.size(); ++i) {
        const Lease lease = streamed.store.acquire(streamed.ids[i], Access::kRead);
        ASSERT_TRUE(test::all_equal(lease.bytes(), static_cast<std::uint8_t>(first + i)));
      }
    }
    for (const test::TempDir& folder : folders) {
      EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
    }
  }
}

TEST(Tiers, WantsAsManyWeightsAsFolders) {
  const test::TempDir folder;
  EXPECT_THROW(Tiers({.nvme_path = folder.path().string(), .nvme_weights = {1, 2}}), ConfigError);
}

TEST(Tiers, NamesTheFolderThatIsFullAndHowMuchIsMissingThere) {
  if (const auto why = test::TinyDisk::unavailable(test::TinyDiskKind::Tmpfs)) {
    GTEST_SKIP() << *why;
  }
  constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;
  const test::TinyDisk roomy(test::TinyDiskKind::Tmpfs, 80 * kMiB);
  const test::TinyDisk tight(test::TinyDiskKind::Tmpfs, 8 * kMiB);
  Tiers tiers({.nvme_path = std::vector{roomy.path().string(), tight.path().string()},
               .nvme_weights = {1, 1},
               .log = [](const std::string&) {}});
  for (int round = 0; round < 2; ++round) {  // A refusal leaves things as they were.
    try {
      static_cast<void>(tiers.take_swap(64 * kMiB, "state"));
      FAIL() << "32 MiB do not fit in 8";
    } catch (const OutOfSpace& error) {
      EXPECT_THAT(error.what(), testing::AllOf(testing::HasSubstr(tight.path().string()),
                                               testing::HasSubstr("32 MiB wanted, 8 MiB free, 24 MiB missing"),
                                               testing::HasSubstr("offload.nvme_path")));
      EXPECT_THAT(error.what(), testing::Not(testing::HasSubstr(roomy.path().string())));
    }
    struct statvfs status {};
    ASSERT_EQ(::statvfs(roomy.path().c_str(), &status), 0);
    EXPECT_EQ(std::uint64_t{status.f_bfree} * status.f_frsize, 80 * kMiB);
    EXPECT_EQ(tiers.disk().used_bytes(), 0U);
  }
  EXPECT_EQ(tiers.take_swap(16 * kMiB, "state").bytes, 16 * kMiB);
}

TEST(Tiers, SaysThatTheFolderIsMissing) {
  const test::TempDir folder;
  EXPECT_THROW(Tiers({.nvme_path = (folder / "missing").string()}), IoError);
}

}  // namespace
}  // namespace spillway::offload::tiers_test
