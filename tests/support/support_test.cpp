#include <gtest/gtest-spi.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <cstdlib>
#include <fstream>
#include <set>
#include <stdexcept>
#include <system_error>
#include <utility>

#include "support/property.hpp"
#include "support/spawn.hpp"
#include "support/temp_dir.hpp"
#include "support/tiny_disk.hpp"

namespace spillway::test::support_test {
namespace {

constexpr const char* kShell = "/bin/sh";

SpawnOptions script(const std::string& text) { return {.arguments = {"-c", text}}; }

TEST(TempDir, IsRemovedWithItsContents) {
  std::filesystem::path path;
  {
    const TempDir folder;
    path = folder.path();
    std::ofstream(folder / "file") << "text";
    EXPECT_TRUE(std::filesystem::exists(path / "file"));
  }
  EXPECT_FALSE(std::filesystem::exists(path));
}

TEST(TempDir, IsRemovedOnceAfterAMove) {
  TempDir first;
  const std::filesystem::path path = first.path();
  {
    const TempDir second = std::move(first);
    EXPECT_EQ(second.path(), path);
  }
  EXPECT_FALSE(std::filesystem::exists(path));
}

TEST(Spawn, CapturesBothOutputsAndTheExitStatus) {
  const Outcome outcome = run(kShell, script("echo out; echo err >&2; exit 3"));
  EXPECT_EQ(outcome.output, "out\n");
  EXPECT_EQ(outcome.error, "err\n");
  EXPECT_EQ(outcome.exit_status, 3);
}

TEST(Spawn, ReadsMoreThanAPipeHolds) {
  const Outcome outcome = run(kShell, script("head -c 1000000 /dev/zero"));
  EXPECT_EQ(outcome.output.size(), 1'000'000U);
}

TEST(Spawn, AddsToTheEnvironmentAndReplacesInIt) {
  SpawnOptions options = script("echo $HOME $SPILLWAY_ADDED; pwd");
  options.environment = {{"HOME", "replaced"}, {"SPILLWAY_ADDED", "added"}};
  options.working_directory = "/";
  EXPECT_EQ(run(kShell, options).output, "replaced added\n/\n");
}

TEST(Spawn, StandardInputIsEmpty) { EXPECT_EQ(run("/bin/cat").output, ""); }

TEST(Spawn, KillsAChildThatHasPrintedWhatWasWaitedFor) {
  Child child(kShell, script("echo ready; exec sleep 1000"));
  child.wait_for_output("ready");
  child.signal(SIGKILL);
  EXPECT_EQ(child.wait().exit_status, 128 + SIGKILL);
}

TEST(Spawn, AChildThatOutlivesItsDeadlineIsKilledAndNamed) {
  Child child(kShell, script("echo stuck; exec sleep 1000"));
  child.wait_for_output("stuck");
  try {
    child.wait(std::chrono::milliseconds(1));
    FAIL() << "the deadline was not kept";
  } catch (const std::runtime_error& error) {
    EXPECT_NE(std::string(error.what()).find("stuck"), std::string::npos);
  }
  EXPECT_NE(::kill(child.pid(), 0), 0);
}

TEST(Spawn, WaitingForWhatAnEndedChildNeverPrintedFails) {
  Child child(kShell, script("echo something else"));
  EXPECT_THROW(child.wait_for_output("ready"), std::runtime_error);
}

TEST(Spawn, AMissingProgramIsAnError) { EXPECT_THROW(run("/no/such/program"), std::system_error); }

TEST(Random, BelowReachesEveryValueAndNoOther) {
  Random random(1);
  std::set<std::uint64_t> seen;
  for (int draw = 0; draw < 1000; ++draw) seen.insert(random.below(7));
  EXPECT_EQ(seen.size(), 7U);
  EXPECT_EQ(*seen.rbegin(), 6U);
}

TEST(Property, StopsAtTheFirstFailureAndNamesItsSeed) {
  static int rounds;
  rounds = 0;
  ::testing::TestPartResultArray failures;
  {
    const ::testing::ScopedFakeTestPartResultReporter reporter(
        ::testing::ScopedFakeTestPartResultReporter::INTERCEPT_ALL_THREADS, &failures);
    ::setenv("SPILLWAY_SEED", "42", 1);
    for_random_seeds(5, [](Random&) {
      ++rounds;
      throw std::runtime_error("broken");
    });
    ::unsetenv("SPILLWAY_SEED");
  }
  ASSERT_EQ(failures.size(), 1);
  EXPECT_NE(std::string(failures.GetTestPartResult(0).message()).find("SPILLWAY_SEED=42"), std::string::npos);
  EXPECT_EQ(rounds, 1) << "a given seed replays one round";
}

class TinyDiskTest : public ::testing::TestWithParam<TinyDiskKind> {};

TEST_P(TinyDiskTest, IsFullAfterItsSizeAndGoneWhenItDies) {
  if (const auto reason = TinyDisk::unavailable(GetParam())) GTEST_SKIP() << *reason;
  constexpr std::uint64_t kBytes = 8U << 20U;
  std::filesystem::path path;
  {
    const TinyDisk disk(GetParam(), kBytes);
    path = disk.path();
    EXPECT_LE(std::filesystem::space(path).available, kBytes);
    std::ofstream file(path / "file", std::ios::binary);
    file << std::string(2 * kBytes, 'x') << std::flush;
    EXPECT_FALSE(file.good());
  }
  EXPECT_FALSE(std::filesystem::exists(path));
}

INSTANTIATE_TEST_SUITE_P(Kinds, TinyDiskTest, ::testing::Values(TinyDiskKind::Tmpfs, TinyDiskKind::Ext4),
                         [](const auto& kind) { return kind.param == TinyDiskKind::Tmpfs ? "Tmpfs" : "Ext4"; });

}  // namespace
}  // namespace spillway::test::support_test
