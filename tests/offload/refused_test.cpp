// What a kernel, a container or a file system may refuse: a store gets the same bytes, and the user one line with the
// reason.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <string>
#include <vector>

#include <spillway/offload/tiers.hpp>

#include "store_fixture.hpp"
#include "support/spawn.hpp"
#include "support/temp_dir.hpp"
#include "support/tiny_disk.hpp"

namespace spillway::offload::refused_test {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

std::size_t count(const std::string& text, const std::string& part) {
  std::size_t found = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) {
    ++found;
  }
  return found;
}

// A store in a process of its own, from which `options` take something away.
test::Outcome store_in(const std::filesystem::path& folder, std::vector<std::string> options) {
  options.insert(options.begin(), {"store", folder.string()});
  return test::run(SPILLWAY_STORAGE_CHILD, {.arguments = std::move(options)});
}

// One line names the engine, and one more at most says what could not be had.
void expect_same_bytes(const test::Outcome& outcome, std::size_t lines) {
  ASSERT_EQ(outcome.exit_status, 0) << outcome.error;
  EXPECT_THAT(outcome.output, HasSubstr("the same bytes came back"));
  EXPECT_EQ(count(outcome.output, "log: "), lines) << outcome.output;
}

#ifdef SPILLWAY_WITH_URING

TEST(Refused, IoUringByASandboxLeavesTheSameBytesAndOneLine) {
  for (const int error : {EPERM, ENOSYS}) {
    const test::TempDir folder;
    const test::Outcome outcome = store_in(folder.path(), {"--deny=setup:" + std::to_string(error)});
    expect_same_bytes(outcome, 1);
    EXPECT_THAT(outcome.output, AllOf(HasSubstr("thread pool (same results"), HasSubstr("a sandbox")));
  }
}

TEST(Refused, LockedMemoryOfAnOrdinaryUserLeavesTheSameBytesAndOneWarning) {
  if (::geteuid() != 0) {
    GTEST_SKIP() << "only root can give its rights up";
  }
  const test::TempDir folder;
  std::filesystem::permissions(folder.path(), std::filesystem::perms::all);
  for (const std::string limit : {"8388608", "0"}) {
    const test::Outcome outcome = store_in(folder.path(), {"--memlock=" + limit, "--nobody"});
    ASSERT_EQ(outcome.exit_status, 0) << outcome.error;
    EXPECT_THAT(outcome.output, HasSubstr("the same bytes came back"));
    if (outcome.output.find("engine: io_uring") != std::string::npos) {
      expect_same_bytes(outcome, 2);
      EXPECT_THAT(outcome.output, AllOf(HasSubstr("could not be registered"), HasSubstr("`ulimit -l ")));
    } else {  // Older kernels count the ring itself.
      expect_same_bytes(outcome, 1);
      EXPECT_THAT(outcome.output, AllOf(HasSubstr("engine: threads"), HasSubstr("ulimit -l")));
    }
  }
}

TEST(Refused, NothingAtAllIsSaidInOneLine) {  // The control.
  const test::TempDir folder;
  const test::Outcome outcome = store_in(folder.path(), {"--engine=io_uring"});
  expect_same_bytes(outcome, 1);
  EXPECT_THAT(outcome.output, HasSubstr("engine: io_uring, fixed buffers, fixed files"));
}

#endif

TEST(Refused, DirectIoByAFileSystemLeavesTheSameBytesAndOneWarning) {
  if (const auto why = test::TinyDisk::unavailable(test::TinyDiskKind::Ramfs)) {
    GTEST_SKIP() << *why;
  }
  const test::TinyDisk disk(test::TinyDiskKind::Ramfs, 0);
  for (const std::string engine : {"auto", "threads"}) {
    const test::Outcome outcome = store_in(disk.path(), {"--engine=" + engine});
    expect_same_bytes(outcome, 2);
    EXPECT_EQ(count(outcome.output, "refuses direct I/O; swapping goes through the page cache"), 1U) << outcome.output;
  }
}

}  // namespace
}  // namespace spillway::offload::refused_test
