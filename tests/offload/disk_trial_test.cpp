// The short trial at start-up: what it chooses, how long it takes, and that it is not repeated.
#include <spillway/offload/disk_trial.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include <spillway/offload/thread_engine.hpp>
#include <spillway/offload/tiers.hpp>

#include "support/temp_dir.hpp"
#include "support/tiny_disk.hpp"

namespace spillway::offload::disk_trial_test {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;

void ignore(const std::string& /*line*/) {}

// A disk that takes 1 ms for a chunk of 2 MiB, and more for all others: no thread sleeps, none gets anywhere sooner.
std::int64_t slow_but_for_two_mebibytes(IoRequest::Operation operation, int fd, std::span<std::byte> buffer,
                                        std::uint64_t offset) {
  const auto until = std::chrono::steady_clock::now() +
                     std::chrono::microseconds(buffer.size() == 2 * kMiB ? 100 : 100 + buffer.size() / 512);
  const std::int64_t moved = ThreadEngine::system_transfer(operation, fd, buffer, offset);
  while (std::chrono::steady_clock::now() < until) {
  }
  return moved;
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // They are too slow for a difference to show.
TEST(DiskTrial, ChoosesTheSettingThatIsClearlyFaster) {
  const test::TempDir folder;
  SwapFile file(folder.path().string(), ignore);
  const std::vector<DiskSetting> settings{{kMiB, 1, {}}, {2 * kMiB, 1, {}}, {4 * kMiB, 1, {}}};
  const auto found = try_disk(
      [](const DiskSetting& setting) {
        return std::make_unique<ThreadEngine>(
            EngineOptions{.block_bytes = setting.block_bytes, .queue_depth = setting.queue_depth, .threads = 1},
            slow_but_for_two_mebibytes);
      },
      file, settings, {});
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(found->block_bytes, 2 * kMiB);
  EXPECT_GT(found->rates.read, 0);
  EXPECT_GT(found->rates.overwrite, 0);
}
#endif

TEST(DiskTrial, GivesUpWhereThereIsNoRoom) {
  if (const auto why = test::TinyDisk::unavailable(test::TinyDiskKind::Tmpfs)) {
    GTEST_SKIP() << *why;
  }
  const test::TinyDisk disk(test::TinyDiskKind::Tmpfs, 8 * kMiB);
  SwapFile file(disk.path().string(), ignore);
  const auto make = [](const DiskSetting&) { return std::make_unique<ThreadEngine>(EngineOptions{}); };
  EXPECT_FALSE(try_disk(make, file, disk_candidates(4 * kMiB), {}).has_value());
}

// Reads into memory that another read in flight fills too are a data race, though nobody looks at what they leave.
TEST(DiskTrial, NoTwoTransfersInFlightShareMemory) {
  const test::TempDir folder;
  SwapFile file(folder.path().string(), ignore);
  std::mutex mutex;
  std::vector<std::span<std::byte>> in_flight;
  bool shared = false;
  std::size_t most = 0;  // In flight at once.
  // Moves nothing and is as quick as a disk can be, but that each transfer waits a while for another to join it.
  const auto transfer = [&](IoRequest::Operation, int, std::span<std::byte> buffer, std::uint64_t) {
    const auto until = std::chrono::steady_clock::now() + std::chrono::microseconds(200);
    {
      const std::scoped_lock lock(mutex);
      shared = shared || std::any_of(in_flight.begin(), in_flight.end(), [&](const auto& other) {
                 return other.data() < buffer.data() + buffer.size() && buffer.data() < other.data() + other.size();
               });
      in_flight.push_back(buffer);
      most = std::max(most, in_flight.size());
    }
    while (std::chrono::steady_clock::now() < until) {
      std::this_thread::yield();
    }
    const std::scoped_lock lock(mutex);
    std::erase_if(in_flight, [&](const auto& other) { return other.data() == buffer.data(); });
    return static_cast<std::int64_t>(buffer.size());
  };
  const std::vector<DiskSetting> settings{{4 * kMiB, 4, {}}};
  const auto make = [&](const DiskSetting& setting) {
    return std::make_unique<ThreadEngine>(
        EngineOptions{.block_bytes = setting.block_bytes, .queue_depth = setting.queue_depth, .threads = 4}, transfer);
  };
  for (const std::uint64_t host_bytes : {9 * kMiB, 64 * kMiB}) {
    EXPECT_TRUE(try_disk(make, file, settings, {.host_bytes = host_bytes}).has_value());
  }
  EXPECT_FALSE(shared);
  EXPECT_GE(most, 2U);
}

TEST(DiskTrial, HasCandidatesFromHalfAMebibyteUpToTheLargestAllowed) {
  for (const std::uint64_t most : {kMiB, 4 * kMiB}) {
    for (const DiskSetting& setting : disk_candidates(most)) {
      EXPECT_GE(setting.block_bytes, kMiB / 2);
      EXPECT_LE(setting.block_bytes, most);
      EXPECT_GE(setting.queue_depth, 4U);
      EXPECT_LE(setting.queue_depth, 32U);
    }
  }
}

struct Opened {
  Opened(const test::TempDir& cache, const std::vector<std::string>& folders, EngineChoice engine) {
    tiers = std::make_unique<Tiers>(TiersOptions{.nvme_path = folders,
                                                 .engine = engine,
                                                 .tune = true,
                                                 .cache_folder = (cache / "spillway").string(),
                                                 .log = [this](const std::string& line) { lines += line + "\n"; }});
  }
  std::string lines;
  std::unique_ptr<Tiers> tiers;
};

TEST(Tuning, IsSaidInTheLineOfTheEngineAndNotRepeated) {
  const test::TempDir cache;
  const test::TempDir folder;
  for (const EngineChoice engine : {EngineChoice::kAuto, EngineChoice::kThreads}) {
    const Opened first(cache, {folder.path().string()}, engine);
    EXPECT_THAT(first.lines, AllOf(HasSubstr("found by a trial: "), HasSubstr("chunks of "), HasSubstr(" in flight")));
    EXPECT_EQ(std::count(first.lines.begin(), first.lines.end(), '\n'), 1);
    const Opened second(cache, {folder.path().string()}, engine);
    EXPECT_THAT(second.lines, AllOf(HasSubstr("found before: "), Not(HasSubstr("by a trial"))));
    const auto chunks = [](const std::string& line) { return line.substr(line.find("chunks of"), 26); };
    EXPECT_EQ(chunks(first.lines).substr(0, 20), chunks(second.lines).substr(0, 20));
  }
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

TEST(Tuning, IsDoneWithoutACacheToo) {
  const test::TempDir folder;
  const test::TempDir nowhere;
  std::string lines;
  const Tiers tiers(
      {.nvme_path = folder.path().string(), .tune = true, .cache_folder = "", .log = [&](const std::string& line) {
         lines += line;
       }});
  EXPECT_THAT(lines, HasSubstr("found by a trial: "));
}

TEST(Tuning, IsLeftOutWhereItIsNotAskedFor) {
  const test::TempDir cache;
  const test::TempDir folder;
  std::string lines;
  const Tiers tiers({.nvme_path = folder.path().string(),
                     .cache_folder = cache.path().string(),
                     .log = [&](const std::string& line) { lines += line; }});
  EXPECT_THAT(lines, Not(HasSubstr("trial: ")));
  EXPECT_TRUE(std::filesystem::is_empty(cache.path()));
}

TEST(Tuning, IsLeftOutWhereItWouldExceedABudget) {
  const test::TempDir folder;
  for (const bool host : {true, false}) {
    std::string lines;
    const Tiers tiers({.host_bytes = host ? 7 * kMiB : kUnlimitedBytes,
                       .disk_bytes = host ? kUnlimitedBytes : 15 * kMiB,
                       .nvme_path = folder.path().string(),
                       .tune = true,
                       .cache_folder = "",
                       .log = [&](const std::string& line) { lines += line; }});
    EXPECT_THAT(lines, HasSubstr("no trial: "));
  }
}

TEST(Tuning, MeasuresTheSharesOfSeveralFolders) {
  const test::TempDir cache;
  const test::TempDir a;
  const test::TempDir b;
  const Opened opened(cache, {a.path().string(), b.path().string()}, EngineChoice::kAuto);
  EXPECT_THAT(opened.lines, AllOf(HasSubstr("swap space is striped in units of "), HasSubstr("in " + a.path().string()),
                                  HasSubstr("in " + b.path().string())));
}

}  // namespace
}  // namespace spillway::offload::disk_trial_test
