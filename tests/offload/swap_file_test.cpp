#include <spillway/offload/swap_file.hpp>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include <spillway/offload/error.hpp>
#include <spillway/offload/tier.hpp>

#include "support/spawn.hpp"
#include "support/temp_dir.hpp"
#include "support/tiny_disk.hpp"

namespace spillway::test::swap_file_test {
namespace {

using offload::kPageBytes;
using offload::SwapFile;

constexpr std::uint64_t kMebibyte = std::uint64_t{1} << 20;

void ignore(const std::string& /*line*/) {}

struct stat status_of(int fd) {
  struct stat status {};
  EXPECT_EQ(::fstat(fd, &status), 0);
  return status;
}

std::string failure_in(const std::filesystem::path& folder) {
  try {
    const SwapFile file(folder.string(), ignore);
  } catch (const IoError& error) {
    EXPECT_EQ(error.failure().path, folder.string());
    return error.what();
  }
  ADD_FAILURE() << "a swap file was made";
  return {};
}

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

TEST(SwapFile, HasNoNameAndIsPrivateWhateverTheUmask) {
  const TempDir folder;
  const mode_t former = ::umask(0);
  const SwapFile file(folder.path().string(), ignore);
  ::umask(former);
  const struct stat status = status_of(file.fd());
  EXPECT_EQ(status.st_mode & 07777U, 0600U);
  EXPECT_EQ(status.st_nlink, 0U);
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
  EXPECT_NE(::fcntl(file.fd(), F_GETFD) & FD_CLOEXEC, 0);
}

TEST(SwapFile, GrowsByAllocatedPages) {
  const TempDir folder;
  SwapFile file(folder.path().string(), ignore);
  file.grow(kMebibyte + 1);
  EXPECT_EQ(file.size_bytes(), kMebibyte + kPageBytes);
  file.grow(kPageBytes);
  EXPECT_EQ(file.size_bytes(), kMebibyte + 2 * kPageBytes);
  const struct stat status = status_of(file.fd());
  EXPECT_EQ(static_cast<std::uint64_t>(status.st_size), file.size_bytes());
  EXPECT_GE(static_cast<std::uint64_t>(status.st_blocks) * 512, file.size_bytes());
}

TEST(SwapFile, RefusesAtOnceWhatDoesNotFitAndGivesBackWhatItTook) {
  for (const TinyDiskKind kind : {TinyDiskKind::Tmpfs, TinyDiskKind::Ext4}) {
    if (const auto why = TinyDisk::unavailable(kind)) {
      GTEST_SKIP() << *why;
    }
    const TinyDisk disk(kind, 16 * kMebibyte);
    SwapFile file(disk.path().string(), ignore);
    file.grow(2 * kMebibyte);
    try {
      file.grow(64 * kMebibyte);
      FAIL() << "64 MiB do not fit in 16";
    } catch (const OutOfSpace& error) {
      const std::string text = error.what();
      for (const std::string& part : {disk.path().string(), std::string("64 MiB wanted"), std::string("free"),
                                      std::string("offload.nvme_path (--nvme-path)")}) {
        EXPECT_TRUE(contains(text, part)) << text;
      }
    }
    EXPECT_EQ(file.size_bytes(), 2 * kMebibyte);
    EXPECT_EQ(static_cast<std::uint64_t>(status_of(file.fd()).st_size), 2 * kMebibyte);
    EXPECT_LT(static_cast<std::uint64_t>(status_of(file.fd()).st_blocks) * 512, 3 * kMebibyte);
    file.grow(2 * kMebibyte);
  }
}

TEST(SwapFile, RefusesSizesThatNoFileCanHave) {
  const TempDir folder;
  SwapFile file(folder.path().string(), ignore);
  EXPECT_THROW(file.grow(~std::uint64_t{0}), OutOfSpace);
  EXPECT_THROW(file.grow(std::uint64_t{1} << 63), OutOfSpace);
  EXPECT_EQ(file.size_bytes(), 0U);
}

TEST(SwapFile, SaysWhatIsWrongWithTheFolder) {
  const TempDir folder;
  std::ofstream(folder / "file") << "text";
  EXPECT_TRUE(contains(failure_in(folder / "missing"),
                       "there is no such folder: create it, or set offload.nvme_path (--nvme-path)"));
  EXPECT_TRUE(contains(failure_in(folder / "file"), "it is not a folder"));
  EXPECT_TRUE(contains(failure_in(folder / "file" / "below"), "offload.nvme_path (--nvme-path)"));
}

Outcome child(const std::filesystem::path& folder, const std::vector<std::string>& options) {
  std::vector<std::string> arguments{"swap", folder.string()};
  arguments.insert(arguments.end(), options.begin(), options.end());
  return run(SPILLWAY_STORAGE_CHILD, {.arguments = std::move(arguments)});
}

TEST(SwapFile, SaysThatAFolderMayNotBeWritten) {
  if (::geteuid() != 0) {
    GTEST_SKIP() << "only root can give its rights up";
  }
  const TempDir folder;
  std::filesystem::permissions(folder.path(), std::filesystem::perms(0755));
  const Outcome outcome = child(folder.path(), {"--nobody"});
  EXPECT_EQ(outcome.exit_status, 1);
  EXPECT_TRUE(contains(outcome.error, "this user may not write there")) << outcome.error;
}

std::string denial(const std::string& call, int error_number) {
  return "--deny=" + call + ":" + std::to_string(error_number);
}

TEST(SwapFile, IsUnlinkedAtOnceWhereThereAreNoNamelessFiles) {
  const TempDir folder;
  for (const int error : {EOPNOTSUPP, EISDIR}) {
    const Outcome outcome = child(folder.path(), {denial("tmpfile", error)});
    EXPECT_EQ(outcome.exit_status, 0) << outcome.error;
    EXPECT_TRUE(contains(outcome.output, "mode 600, links 0, size 8388608, allocated yes, direct yes\n"))
        << outcome.output;
    EXPECT_TRUE(
        contains(outcome.output, "log: the file system of " + folder.path().string() + " has no nameless files"));
    EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
  }
}

TEST(SwapFile, GoesThroughThePageCacheWhereDirectIoIsRefused) {
  const TempDir folder;
  const Outcome outcome = child(folder.path(), {denial("direct", EINVAL)});
  EXPECT_EQ(outcome.exit_status, 0) << outcome.error;
  EXPECT_TRUE(contains(outcome.output, "allocated yes, direct no\n")) << outcome.output;
  EXPECT_TRUE(contains(outcome.output, "refuses direct I/O")) << outcome.output;
}

TEST(SwapFile, WritesZerosWhereSpaceCannotBePreallocated) {
  const TempDir folder;
  const Outcome outcome = child(folder.path(), {denial("fallocate", EOPNOTSUPP)});
  EXPECT_EQ(outcome.exit_status, 0) << outcome.error;
  EXPECT_TRUE(contains(outcome.output, "size 8388608, allocated yes, direct yes\n")) << outcome.output;
}

TEST(SwapFile, ReportsAFullDiskAlsoWhereItWritesZeros) {
  if (const auto why = TinyDisk::unavailable(TinyDiskKind::Tmpfs)) {
    GTEST_SKIP() << *why;
  }
  const TinyDisk disk(TinyDiskKind::Tmpfs, 4 * kMebibyte);
  const Outcome outcome = child(disk.path(), {denial("fallocate", EOPNOTSUPP)});
  EXPECT_EQ(outcome.exit_status, 1);
  EXPECT_TRUE(contains(outcome.error, "8 MiB wanted")) << outcome.error;
}

// Without random numbers the names can be foreseen, so that links may lie in wait at every one of them.
TEST(SwapFile, FollowsNoLinkThatWaitsAtItsName) {
  const TempDir folder;
  const TempDir elsewhere;
  std::ofstream(elsewhere / "victim") << "precious";
  const Outcome outcome = child(folder.path(), {"--lie-in-wait=" + (elsewhere / "victim").string(),
                                                denial("tmpfile", EOPNOTSUPP), denial("getrandom", ENOSYS)});
  EXPECT_EQ(outcome.exit_status, 1) << outcome.output;
  EXPECT_TRUE(contains(outcome.error, "File exists")) << outcome.error;
  std::string text;
  std::ifstream(elsewhere / "victim") >> text;
  EXPECT_EQ(text, "precious");
}

}  // namespace
}  // namespace spillway::test::swap_file_test
