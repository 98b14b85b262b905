// Faults that the kernel itself makes, on every engine that does real I/O.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <filesystem>
#include <functional>
#include <string>

#include <spillway/offload/error.hpp>
#include <spillway/offload/thread_engine.hpp>
#include <spillway/offload/unique_fd.hpp>
#ifdef SPILLWAY_WITH_URING
#include <spillway/offload/uring_engine.hpp>
#endif

#include "offload/engine_fixture.hpp"
#include "support/tiny_disk.hpp"

namespace spillway::test::engine_fault_test {
namespace {

using offload::EngineOptions;
using offload::FileId;
using offload::kPageBytes;
using offload::StorageEngine;
using offload::Ticket;
using offload::UniqueFd;

constexpr std::uint64_t kMebibyte = std::uint64_t{1} << 20;

class EngineFault : public testing::TestWithParam<std::string> {
 protected:
  static std::unique_ptr<StorageEngine> make(const EngineOptions& options = {.queue_depth = 4}) {
#ifdef SPILLWAY_WITH_URING
    if (GetParam() == "io_uring") {
      return offload::make_uring_engine(options);
    }
#endif
    return std::make_unique<offload::ThreadEngine>(options);
  }
};

INSTANTIATE_TEST_SUITE_P(Engines, EngineFault,
#ifdef SPILLWAY_WITH_URING
                         testing::Values("io_uring", "threads"),
#else
                         testing::Values("threads"),
#endif
                         [](const auto& test) { return test.param; });

IoFailure failure_of(const Ticket& ticket) {
  try {
    ticket.wait(kLong);
  } catch (const IoError& error) {
    return error.failure();
  }
  ADD_FAILURE() << "the transfer succeeded";
  return {};
}

TEST_P(EngineFault, ReportsAReadAcrossTheEndOfTheFileAndPoisonsTheEngine) {
  ScratchFile scratch(3 * kMebibyte);
  const auto engine = make();
  const FileId file = engine->register_file(scratch.file.fd(), "scratch file");
  const offload::AlignedBlock memory(2 * kMebibyte);
  const IoFailure failure = failure_of(engine->submit(request(kRead, file, 2 * kMebibyte, memory.bytes())));
  EXPECT_EQ(failure.operation, "read");
  EXPECT_EQ(failure.path, "scratch file");
  EXPECT_EQ(failure.offset, 3 * kMebibyte);
  EXPECT_EQ(failure.bytes, kMebibyte);
  EXPECT_EQ(failure.error_number, 0);
  EXPECT_THROW(static_cast<void>(engine->submit(request(kRead, file, 0, memory.bytes()))), IoError);
  EXPECT_THROW(engine->drain(kLong), IoError);
}

TEST_P(EngineFault, ReportsADescriptorThatCannotBeWritten) {
  ScratchFile scratch(kMebibyte);
  const std::string path = "/proc/self/fd/" + std::to_string(scratch.file.fd());
  const UniqueFd read_only = UniqueFd::adopt(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  ASSERT_TRUE(read_only);
  const auto engine = make();
  const FileId file = engine->register_file(read_only.get(), "read-only file");
  const offload::AlignedBlock memory = filled_block(kMebibyte, 1);
  EXPECT_EQ(failure_of(engine->submit(request(kWrite, file, 0, memory.bytes()))).error_number, EBADF);
}

/// Lowers the limit on file sizes while it lives: a write across it is truly short, the next one fails.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(std::uint64_t bytes) {
    ::getrlimit(RLIMIT_FSIZE, &former_);
    handler_ = std::signal(SIGXFSZ, SIG_IGN);
    const rlimit lowered{bytes, former_.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &lowered);
  }
  ~FileSizeLimit() {
    ::setrlimit(RLIMIT_FSIZE, &former_);
    std::signal(SIGXFSZ, handler_);
  }
  FileSizeLimit(const FileSizeLimit&) = delete;
  FileSizeLimit& operator=(const FileSizeLimit&) = delete;

 private:
  rlimit former_{};
  void (*handler_)(int) = nullptr;
};

TEST_P(EngineFault, ContinuesAShortWriteAndReportsWhereItEnded) {
  ScratchFile scratch(4 * kMebibyte);
  const offload::AlignedBlock data = filled_block(4 * kMebibyte, 2);
  const std::uint64_t limit = 2 * kMebibyte + 5 * kPageBytes;
  IoFailure failure;
  {
    const FileSizeLimit lowered(limit);  // Before the engine: its threads take the limit from here.
    const auto engine = make({.block_bytes = 4 * kMebibyte, .queue_depth = 1});
    const FileId file = engine->register_file(scratch.file.fd(), "scratch file");
    failure = failure_of(engine->submit(request(kWrite, file, 0, data.bytes())));
  }
  EXPECT_EQ(failure.error_number, EFBIG);
  EXPECT_EQ(failure.offset, limit);
  EXPECT_EQ(failure.bytes, 4 * kMebibyte - limit);
  const auto engine = make();
  const FileId file = engine->register_file(scratch.file.fd(), "scratch file");
  const offload::AlignedBlock back(limit);
  engine->submit(request(kRead, file, 0, back.bytes()), {}).wait(kLong);
  EXPECT_TRUE(same(back.bytes(), data.bytes().first(limit)));
}

TEST_P(EngineFault, ReportsAFullDiskAsOutOfSpaceAndLeavesTheSourceAlone) {
  if (const auto why = TinyDisk::unavailable(TinyDiskKind::Tmpfs)) {
    GTEST_SKIP() << *why;
  }
  const TinyDisk disk(TinyDiskKind::Tmpfs, 4 * kMebibyte);
  const UniqueFd fd = UniqueFd::adopt(::open(disk.path().c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600));
  ASSERT_TRUE(fd);
  const offload::AlignedBlock data = filled_block(16 * kMebibyte, 3);
  const offload::AlignedBlock original = filled_block(16 * kMebibyte, 3);
  const auto engine = make();
  const FileId file = engine->register_file(fd.get(), "file on a tiny disk");
  const Ticket ticket = engine->submit(request(kWrite, file, 0, data.bytes()));
  try {
    ticket.wait(kLong);
    FAIL() << "sixteen MiB do not fit in four";
  } catch (const OutOfSpace& error) {
    EXPECT_NE(std::string(error.what()).find("nvme_path"), std::string::npos);
  }
  EXPECT_TRUE(same(data.bytes(), original.bytes()));
  EXPECT_THROW(static_cast<void>(engine->submit(request(kWrite, file, 0, data.bytes()))), OutOfSpace);
}

// The file system's image is cut off beneath it: its kernel driver then gets no data and says EIO.
TEST_P(EngineFault, ReportsAMediumErrorOfARealBlockDevice) {
  if (const auto why = TinyDisk::unavailable(TinyDiskKind::Ext4)) {
    GTEST_SKIP() << *why;
  }
  constexpr std::uint64_t kBytes = 24 * kMebibyte;
  const TinyDisk disk(TinyDiskKind::Ext4, 32 * kMebibyte);
  offload::SwapFile swap(disk.path().string(), [](const std::string& line) { ADD_FAILURE() << line; });
  swap.grow(kBytes);
  const offload::AlignedBlock data = filled_block(kBytes, 4);
  {
    const auto engine = make();
    const FileId file = engine->register_file(swap.fd(), "swap file");
    engine->submit(request(kWrite, file, 0, data.bytes()), {}).wait(kLong);
    engine->submit(request(kRead, file, 0, data.bytes()), {}).wait(kLong);
  }
  ASSERT_EQ(::fsync(swap.fd()), 0);
  std::filesystem::resize_file(disk.path().parent_path() / "image", 12 * kMebibyte);
  const auto engine = make();
  const FileId file = engine->register_file(swap.fd(), "swap file");
  const IoFailure failure = failure_of(engine->submit(request(kRead, file, 0, data.bytes())));
  EXPECT_EQ(failure.operation, "read");
  EXPECT_EQ(failure.error_number, EIO);
  EXPECT_EQ(failure.path, "swap file");
  EXPECT_LT(failure.offset, kBytes);
  EXPECT_THROW(static_cast<void>(engine->submit(request(kWrite, file, 0, data.bytes()))), IoError);
}

}  // namespace
}  // namespace spillway::test::engine_fault_test
