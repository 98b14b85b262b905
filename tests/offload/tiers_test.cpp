#include <spillway/offload/tiers.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include <spillway/offload/error.hpp>

#include "store_fixture.hpp"
#include "support/temp_dir.hpp"

namespace spillway::offload::tiers_test {
namespace {

using test::MemoryEngine;
using test::MemoryTiers;

constexpr std::uint64_t kPage = kPageBytes;

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

TEST(Tiers, SaysThatTheFolderIsMissing) {
  const test::TempDir folder;
  EXPECT_THROW(Tiers({.nvme_path = (folder / "missing").string()}), IoError);
}

}  // namespace
}  // namespace spillway::offload::tiers_test
