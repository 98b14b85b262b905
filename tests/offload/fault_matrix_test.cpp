// Every transfer of a scan meets every fault in turn, on both engines that do real I/O: the bytes are the same, or the
// error says which transfer failed; nothing hangs and nothing is left behind.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <ostream>
#include <string>
#include <thread>
#include <vector>

#include <spillway/offload/error.hpp>
#include <spillway/offload/thread_engine.hpp>
#ifdef SPILLWAY_WITH_URING
#include <spillway/offload/uring_engine.hpp>
#endif

#include "store_fixture.hpp"
#include "support/lying_kernel.hpp"
#include "support/temp_dir.hpp"

namespace spillway::offload::fault_matrix_test {
namespace {

using test::Lie;
using test::LyingKernel;
using testing::HasSubstr;

constexpr std::uint64_t kBlock = 3 * kPageBytes;
constexpr std::size_t kBlocks = 30;
constexpr int kPasses = 3;
constexpr std::uint64_t kTransfers = 200;  // Of the 240 that a scan makes.
constexpr std::chrono::milliseconds kDeadline{5'000};
#if defined(__SANITIZE_THREAD__)
constexpr bool kThreadSanitizer = true;
#else
constexpr bool kThreadSanitizer = false;
#endif
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr std::uint64_t kStride = 9;
#else
constexpr std::uint64_t kStride = 1;
#endif

enum class Kind { kThreads, kUring };

struct Case {
  Kind engine;
  Lie lie;
  const char* name;
};

void PrintTo(const Case& which, std::ostream* out) { *out << which.name; }

std::unique_ptr<StorageEngine> engine_behind(Kind kind, std::shared_ptr<LyingKernel> kernel) {
  const EngineOptions options{.queue_depth = 4, .threads = 2};
#ifdef SPILLWAY_WITH_URING
  if (kind == Kind::kUring) {
    return make_uring_engine(
        options, [kernel](IoRequest::Operation operation, int fd, std::span<std::byte> buffer, std::uint64_t offset,
                          std::int64_t result) { return kernel->tell(operation, fd, buffer, offset, result); });
  }
#endif
  EXPECT_EQ(kind, Kind::kThreads);
  return std::make_unique<ThreadEngine>(options, [kernel](IoRequest::Operation operation, int fd,
                                                          std::span<std::byte> buffer, std::uint64_t offset) {
    return kernel->tell(operation, fd, buffer, offset, ThreadEngine::system_transfer(operation, fd, buffer, offset));
  });
}

std::uint8_t value_of(std::size_t block, int pass) { return static_cast<std::uint8_t>(block + 37 * pass); }

// Looks at every byte that it gets.
void scan(test::StreamedStore& streamed) {
  streamed.fill(value_of(0, 0));
  for (int pass = 1; pass <= kPasses; ++pass) {
    streamed.store.begin(streamed.ids, Access::kReadWrite);
    for (std::size_t i = 0; i < kBlocks; ++i) {
      Lease lease = streamed.store.acquire(streamed.ids[i], Access::kReadWrite);
      ASSERT_TRUE(test::all_equal(lease.bytes(), value_of(i, pass - 1))) << "wrong bytes were handed out";
      std::memset(lease.bytes().data(), value_of(i, pass), lease.bytes().size());
      lease.release();
    }
  }
  streamed.store.begin(streamed.ids, Access::kRead);
  for (std::size_t i = 0; i < kBlocks; ++i) {
    const Lease lease = streamed.store.acquire(streamed.ids[i], Access::kRead);
    ASSERT_TRUE(test::all_equal(lease.bytes(), value_of(i, kPasses))) << "wrong bytes were handed out";
  }
  streamed.store.flush();
}

void expect_named(const IoError& error, Lie lie, const LyingKernel::Victim& victim) {
  const IoFailure& failure = error.failure();
  EXPECT_EQ(failure.operation, victim.operation == IoRequest::Operation::kRead ? "read" : "write");
  EXPECT_EQ(failure.offset, victim.offset);
  EXPECT_EQ(failure.bytes, kBlock);
  EXPECT_EQ(failure.error_number, lie == Lie::kEio ? EIO : lie == Lie::kNoSpace ? ENOSPC : 0);
  EXPECT_EQ(dynamic_cast<const OutOfSpace*>(&error) != nullptr, lie == Lie::kNoSpace);
  EXPECT_THAT(failure.path, testing::AllOf(HasSubstr("swap file in "), HasSubstr("block 'block ")));
  if (victim.operation == IoRequest::Operation::kWrite) {
    EXPECT_EQ(std::memcmp(victim.buffer.data(), victim.contents.data(), victim.contents.size()), 0)
        << "the source of a failed write was touched";
  }
}

enum class Outcome { kSameBytes, kIoError, kCorruption };

Outcome one_scan(const Case& which, const std::string& folder, std::uint64_t nth) {
  const auto kernel = std::make_shared<LyingKernel>(which.lie, nth);
  const auto tiers = std::make_shared<Tiers>(
      TiersOptions{.nvme_path = folder, .deadline = kDeadline, .log = [](const std::string&) {}},
      engine_behind(which.engine, kernel));
  const auto start = std::chrono::steady_clock::now();
  Outcome outcome = Outcome::kSameBytes;
  {
    const std::uint64_t background_sum_bytes = nth % 2 == 0 ? 1 : 2 * kBlock;
    test::StreamedStore streamed(tiers, kBlocks, kBlock, 4, true, background_sum_bytes);
    try {
      scan(streamed);
    } catch (const IoError& error) {
      outcome = Outcome::kIoError;
      expect_named(error, which.lie, kernel->victim().value());
      EXPECT_THROW(tiers->engine().drain(kDeadline), IoError) << "again, to whoever asks";
    } catch (const Corruption& error) {
      outcome = Outcome::kCorruption;
      EXPECT_THAT(error.what(), testing::AllOf(HasSubstr("block 'block "), HasSubstr(folder), HasSubstr("at offset")));
    }
  }
  EXPECT_TRUE(kernel->victim().has_value()) << "transfer " << nth << " never came";
  EXPECT_LT(std::chrono::steady_clock::now() - start, kDeadline);
  EXPECT_EQ(tiers->host().used_bytes() + tiers->disk().used_bytes(), 0U);
  return outcome;
}

// In memory where that can be had: it is about the order of things, not about a disk.
std::string scratch_folder(const test::TempDir& other) {
  constexpr char kInMemory[] = "/dev/shm";
  return ::access(kInMemory, W_OK) == 0 ? std::string(kInMemory) : other.path().string();
}

std::size_t open_files() {
  const std::filesystem::directory_iterator entries("/proc/self/fd");
  return static_cast<std::size_t>(std::distance(begin(entries), end(entries)));
}

std::uint64_t resident_kibibytes() {
  std::ifstream status("/proc/self/status");
  for (std::string key; status >> key;) {
    std::uint64_t kibibytes = 0;
    if (key == "VmRSS:" && status >> kibibytes) {
      return kibibytes;
    }
  }
  return 0;
}

class FaultMatrix : public testing::TestWithParam<Case> {};

// Row 4 of docs/known_bugs.md, among others: a write that ends short is continued, and one that finds the disk full is
// an error.
TEST_P(FaultMatrix, EndsInTheSameBytesOrInAnErrorThatNamesTheTransfer) {
  const test::TempDir other;
  const std::string folder = scratch_folder(other);
#ifdef SPILLWAY_WITH_URING
  if (GetParam().engine == Kind::kUring) {
    try {
      static_cast<void>(make_uring_engine({}));
    } catch (const IoError& error) {
      GTEST_SKIP() << "io_uring does not work here: " << error.what();
    }
  }
#endif
  const Lie lie = GetParam().lie;
  static_cast<void>(one_scan(GetParam(), folder, 1));  // What is allocated once is there now.
  const std::size_t files_before = open_files();
  const std::uint64_t memory_before = resident_kibibytes();
  std::atomic<std::uint64_t> scans{0};
  std::atomic<std::uint64_t> corrupt{0};
  {
    // The kernel maps a new ring where one has just been unmapped, which the thread sanitizer does not see: rings of
    // several threads look to it like one.
    const std::uint64_t side_by_side = kThreadSanitizer ? 1 : lie == Lie::kDelay ? 16 : 2;
    std::vector<std::jthread> threads;
    for (std::uint64_t first = 1; first <= side_by_side; ++first) {
      threads.emplace_back([&, first] {
        for (std::uint64_t n = 1 + (first - 1) * kStride; n <= kTransfers && !testing::Test::HasFailure();
             n += side_by_side * kStride) {
          const Outcome outcome = one_scan(GetParam(), folder, n);
          ++scans;
          corrupt += outcome == Outcome::kCorruption ? 1 : 0;
          const bool fatal = lie == Lie::kEio || lie == Lie::kNothing || lie == Lie::kNoSpace;
          const bool damage = lie == Lie::kBitFlip || lie == Lie::kStale;
          EXPECT_EQ(outcome == Outcome::kIoError, fatal) << "transfer " << n;
          EXPECT_TRUE(outcome != Outcome::kCorruption || damage) << "transfer " << n;
        }
      });
    }
  }
  EXPECT_EQ(scans, (kTransfers + kStride - 1) / kStride);
  if (lie == Lie::kBitFlip || lie == Lie::kStale) {
    // A damaged block may be handed on from memory before it is read again.
    EXPECT_GE(corrupt * 10, scans * 8);
  }
  EXPECT_EQ(open_files(), files_before);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // They keep what is freed for a while.
  EXPECT_LT(resident_kibibytes(), memory_before + 16 * 1024);
#else
  static_cast<void>(memory_before);
#endif
}

std::vector<Case> every_case() {
  std::vector<Case> cases;
  for (const Kind engine : {
#ifdef SPILLWAY_WITH_URING
           Kind::kUring,
#endif
           Kind::kThreads}) {
    for (const auto& [lie, name] : std::vector<std::pair<Lie, const char*>>{{Lie::kEio, "Eio"},
                                                                            {Lie::kAgainThrice, "AgainThrice"},
                                                                            {Lie::kInterrupted, "Interrupted"},
                                                                            {Lie::kShort, "Short"},
                                                                            {Lie::kNothing, "Nothing"},
                                                                            {Lie::kNoSpace, "NoSpace"},
                                                                            {Lie::kBitFlip, "BitFlip"},
                                                                            {Lie::kStale, "Stale"},
                                                                            {Lie::kDelay, "Delay"}}) {
      cases.push_back({engine, lie, name});
    }
  }
  return cases;
}

INSTANTIATE_TEST_SUITE_P(Engines, FaultMatrix, testing::ValuesIn(every_case()), [](const auto& test) {
  return std::string(test.param.engine == Kind::kUring ? "IoUring" : "Threads") + test.param.name;
});

}  // namespace
}  // namespace spillway::offload::fault_matrix_test
