#include <spillway/offload/engine_factory.hpp>

#include <gtest/gtest.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include <spillway/offload/error.hpp>

#include "offload/engine_fixture.hpp"
#include "support/spawn.hpp"
#include "support/tiny_disk.hpp"

namespace spillway::test::engine_factory_test {
namespace {

Outcome child(const std::string& command, const std::filesystem::path& folder, std::vector<std::string> options = {}) {
  std::vector<std::string> arguments{command, folder.string()};
  arguments.insert(arguments.end(), options.begin(), options.end());
  return run(SPILLWAY_STORAGE_CHILD, {.arguments = std::move(arguments)});
}

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

std::size_t count(const std::string& text, const std::string& part) {
  std::size_t found = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) {
    ++found;
  }
  return found;
}

std::string denial(const std::string& call, int error_number) {
  return "--deny=" + call + ":" + std::to_string(error_number);
}

std::size_t entries(const std::filesystem::path& folder) {
  return static_cast<std::size_t>(
      std::distance(std::filesystem::directory_iterator(folder), std::filesystem::directory_iterator()));
}

#ifdef SPILLWAY_WITH_URING

TEST(EngineChoice, IsIoUringWithRegisteredFilesAndMemoryWhereThatWorks) {
  const TempDir folder;
  const Outcome outcome = child("transfer", folder.path(), {"--engine=io_uring"});
  ASSERT_EQ(outcome.exit_status, 0) << outcome.error;
  EXPECT_TRUE(contains(outcome.output, "engine: io_uring, fixed buffers, fixed files\n")) << outcome.output;
  EXPECT_TRUE(contains(outcome.output, "the same bytes came back"));
  EXPECT_EQ(count(outcome.output, "log: "), 1U) << outcome.output;
}

struct Refusal {
  const char* call;
  int error_number;
};

class RefusedIoUring : public testing::TestWithParam<Refusal> {};

INSTANTIATE_TEST_SUITE_P(Calls, RefusedIoUring,
                         testing::Values(Refusal{"setup", EPERM}, Refusal{"setup", ENOSYS}, Refusal{"setup", ENOMEM},
                                         Refusal{"enter", EPERM}),
                         [](const auto& test) { return test.param.call + std::to_string(test.param.error_number); });

TEST_P(RefusedIoUring, LeavesTheThreadPoolWithTheSameBytesAndOneLineWithTheReason) {
  const TempDir folder;
  const Outcome outcome = child("transfer", folder.path(), {denial(GetParam().call, GetParam().error_number)});
  ASSERT_EQ(outcome.exit_status, 0) << outcome.error;
  EXPECT_TRUE(contains(outcome.output, "engine: threads\n")) << outcome.output;
  EXPECT_TRUE(contains(outcome.output, "the same bytes came back"));
  EXPECT_EQ(count(outcome.output, "log: "), 1U) << outcome.output;
  EXPECT_TRUE(contains(outcome.output, "errno " + std::to_string(GetParam().error_number))) << outcome.output;
}

TEST_P(RefusedIoUring, IsAnErrorWithTheReasonAndTheWayOutWhereItIsForced) {
  const TempDir folder;
  const Outcome outcome =
      child("transfer", folder.path(), {"--engine=io_uring", denial(GetParam().call, GetParam().error_number)});
  EXPECT_EQ(outcome.exit_status, 1);
  EXPECT_TRUE(contains(outcome.error, "errno " + std::to_string(GetParam().error_number))) << outcome.error;
  EXPECT_TRUE(contains(outcome.error, "set aio.engine to auto or threads")) << outcome.error;
  EXPECT_EQ(count(outcome.error, "\n"), 1U) << outcome.error;
}

TEST(EngineChoice, StaysIoUringWithoutRegistrationWhereOnlyThatIsRefused) {
  const TempDir folder;
  const Outcome outcome = child("transfer", folder.path(), {"--engine=io_uring", denial("register", EPERM)});
  ASSERT_EQ(outcome.exit_status, 0) << outcome.error;
  EXPECT_TRUE(contains(outcome.output, "engine: io_uring\n")) << outcome.output;
  EXPECT_TRUE(contains(outcome.output, "could not be registered")) << outcome.output;
  EXPECT_TRUE(contains(outcome.output, "the same bytes came back"));
}

TEST(EngineChoice, NamesTheLimitThatKeepsMemoryFromBeingRegistered) {
  if (::geteuid() != 0) {
    GTEST_SKIP() << "only root can give its rights up";
  }
  const TempDir folder;
  std::filesystem::permissions(folder.path(), std::filesystem::perms::all);
  const Outcome outcome = child("transfer", folder.path(), {"--engine=io_uring", "--memlock=4194304", "--nobody"});
  ASSERT_EQ(outcome.exit_status, 0) << outcome.error;
  EXPECT_TRUE(contains(outcome.output, "note: 16 MiB of buffers could not be registered")) << outcome.output;
  EXPECT_TRUE(contains(outcome.output, "ulimit -l 17408")) << outcome.output;
  EXPECT_TRUE(contains(outcome.output, "the same bytes came back"));
}

TEST(EngineChoice, ReportsARingThatIsTakenAwayWhileTransfersAreUnderWay) {
  const TempDir folder;
  const Outcome outcome = child("deny-later", folder.path(), {"--engine=io_uring", denial("enter", EPERM)});
  EXPECT_EQ(outcome.exit_status, 1);
  EXPECT_TRUE(contains(outcome.error, "io_uring_enter")) << outcome.error;
  EXPECT_TRUE(contains(outcome.error, "errno 1")) << outcome.error;
}

#endif

TEST(EngineChoice, IsTheThreadPoolWhereThatIsForced) {
  const TempDir folder;
  std::vector<std::string> lines;
  const auto engine = offload::make_engine(offload::EngineChoice::kThreads, {}, folder.path().string(),
                                           [&](const std::string& line) { lines.push_back(line); });
  EXPECT_EQ(engine->info().name, "threads");
  ASSERT_EQ(lines.size(), 1U);
  EXPECT_TRUE(contains(lines[0], "aio.engine")) << lines[0];
}

TEST(EngineChoice, NamesAFolderThatIsMissing) {
  const TempDir folder;
  try {
    static_cast<void>(
        offload::make_engine(offload::EngineChoice::kAuto, {}, (folder / "none").string(), [](const std::string&) {}));
    FAIL() << "there is no such folder";
  } catch (const IoError& error) {
    EXPECT_TRUE(contains(error.what(), "offload.nvme_path (--nvme-path)")) << error.what();
  }
}

TEST(EngineChoice, RefusesAFolderWithoutSpaceForItsTrial) {
  if (const auto why = TinyDisk::unavailable(TinyDiskKind::Tmpfs)) {
    GTEST_SKIP() << *why;
  }
  const TinyDisk disk(TinyDiskKind::Tmpfs, offload::kPageBytes);
  offload::SwapFile filler(disk.path().string(), [](const std::string&) {});
  filler.grow(offload::kPageBytes);
  EXPECT_THROW(static_cast<void>(offload::make_engine(offload::EngineChoice::kAuto, {}, disk.path().string(),
                                                      [](const std::string&) {})),
               OutOfSpace);
}

// Row 11 of docs/known_bugs.md.
TEST(TwoProcesses, ShareAFolderWithoutSeeingEachOther) {
  const TempDir folder;
  const SpawnOptions options{.arguments = {"transfer", folder.path().string()}};
  Child first(SPILLWAY_STORAGE_CHILD, options);
  Child second(SPILLWAY_STORAGE_CHILD, options);
  for (Child* const process : {&first, &second}) {
    const Outcome outcome = process->wait();
    EXPECT_EQ(outcome.exit_status, 0) << outcome.error;
    EXPECT_TRUE(contains(outcome.output, "the same bytes came back")) << outcome.output;
  }
  EXPECT_EQ(entries(folder.path()), 0U);
}

// Row 11, too.
class KilledWhileStreaming : public testing::TestWithParam<std::string> {};

INSTANTIATE_TEST_SUITE_P(Engines, KilledWhileStreaming,
#ifdef SPILLWAY_WITH_URING
                         testing::Values("io_uring", "threads"),
#else
                         testing::Values("threads"),
#endif
                         [](const auto& test) { return test.param; });

std::uint64_t free_bytes(const std::filesystem::path& folder) {
  struct statvfs status {};
  EXPECT_EQ(::statvfs(folder.c_str(), &status), 0);
  return std::uint64_t{status.f_bfree} * status.f_frsize;
}

TEST_P(KilledWhileStreaming, LeavesNoFileAndAllTheSpace) {
  if (const auto why = TinyDisk::unavailable(TinyDiskKind::Ext4)) {
    GTEST_SKIP() << *why;
  }
  const TinyDisk disk(TinyDiskKind::Ext4, std::uint64_t{64} << 20);  // Nobody else writes there.
  const std::size_t entries_before = entries(disk.path());
  const std::uint64_t free_before = free_bytes(disk.path());
  for (int round = 0; round < 3; ++round) {
    Child process(SPILLWAY_STORAGE_CHILD, {.arguments = {"stream", disk.path().string(), "--engine=" + GetParam()}});
    process.wait_for_output("streaming");
    EXPECT_LT(free_bytes(disk.path()), free_before);
    process.signal(SIGKILL);
    EXPECT_EQ(process.wait().exit_status, 128 + SIGKILL);
    EXPECT_EQ(entries(disk.path()), entries_before);
    // The kernel frees the blocks when the last transfer of the dead process has ended, soon after.
    const auto deadline = std::chrono::steady_clock::now() + kLong;
    while (free_bytes(disk.path()) != free_before && std::chrono::steady_clock::now() < deadline) {
      std::this_thread::yield();
    }
    EXPECT_EQ(free_bytes(disk.path()), free_before);
  }
}

}  // namespace
}  // namespace spillway::test::engine_factory_test
