// The part that engines share, seen through an engine whose system calls the test makes up.
#include <spillway/offload/queued_engine.hpp>

#include <gtest/gtest.h>

#include <atomic>
#include <cerrno>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <string>

#include <spillway/offload/thread_engine.hpp>

#include "offload/engine_fixture.hpp"

namespace spillway::test::queued_engine_test {
namespace {

using offload::EngineOptions;
using offload::FileId;
using offload::IoRequest;
using offload::kIdleTriesMax;
using offload::kPageBytes;
using offload::Lane;
using offload::ThreadEngine;
using offload::Ticket;

/// Holds system calls back until the test opens it.
class Gate {
 public:
  void pass() {
    std::unique_lock lock(mutex_);
    ++waiting_;
    changed_.notify_all();
    changed_.wait(lock, [this] { return open_; });
  }
  void open() {
    const std::lock_guard lock(mutex_);
    open_ = true;
    changed_.notify_all();
  }
  void wait_for(unsigned count) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return waiting_ >= count; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool open_ = false;
  unsigned waiting_ = 0;
};

constexpr EngineOptions kOneAtATime{.block_bytes = kPageBytes, .queue_depth = 1, .threads = 1};

/// Page numbers in the order in which an engine with one worker moved them. The first waits at a gate, so that all the
/// others are queued by the time when the worker chooses.
class OrderOfTransfers : public testing::Test {
 protected:
  OrderOfTransfers()
      : engine(kOneAtATime, [this](IoRequest::Operation, int, std::span<std::byte> buffer, std::uint64_t offset) {
          if (order.empty()) {
            gate.pass();
          }
          order.push_back(offset / kPageBytes);
          return static_cast<std::int64_t>(buffer.size());
        }) {
    file = engine.register_file(0, "made up");
    submit(0, 1, Lane::kWaited);
    gate.wait_for(1);
  }

  Ticket submit(std::uint64_t page, std::uint64_t pages, Lane lane, std::span<const Ticket> after = {}) {
    return engine.submit(request(kWrite, file, page * kPageBytes, memory.bytes().first(pages * kPageBytes), lane),
                         after);
  }
  const std::vector<std::uint64_t>& finish() {
    gate.open();
    engine.drain(kLong);
    return order;
  }

  Gate gate;
  std::vector<std::uint64_t> order;
  offload::AlignedBlock memory{16 * kPageBytes};
  ThreadEngine engine;
  FileId file;
};

using Pages = std::vector<std::uint64_t>;

TEST_F(OrderOfTransfers, FollowsTheLanes) {
  submit(5, 1, Lane::kCheckpoint);
  submit(4, 1, Lane::kWriteBack);
  submit(3, 1, Lane::kState);
  submit(2, 1, Lane::kBank);
  submit(1, 1, Lane::kWaited);
  EXPECT_EQ(finish(), (Pages{0, 1, 2, 3, 4, 5}));
}

TEST_F(OrderOfTransfers, FollowsSubmissionWithinALane) {
  submit(1, 2, Lane::kState);
  submit(3, 3, Lane::kState);
  submit(6, 1, Lane::kState);
  EXPECT_EQ(finish(), (Pages{0, 1, 2, 3, 4, 5, 6}));
}

TEST_F(OrderOfTransfers, DoesNotHoldALaneUpForOneThatCannotStart) {
  const Ticket last = submit(3, 1, Lane::kCheckpoint);
  submit(4, 1, Lane::kBank, {&last, 1});
  submit(1, 2, Lane::kState);
  EXPECT_EQ(finish(), (Pages{0, 1, 2, 3, 4}));
}

TEST_F(OrderOfTransfers, PutsWhatIsWaitedForFirstWithWhatItComesAfter) {
  submit(4, 2, Lane::kBank);
  const Ticket write = submit(1, 2, Lane::kWriteBack);
  const Ticket read = submit(3, 1, Lane::kState, {&write, 1});
  engine.expedite(read);
  EXPECT_EQ(finish(), (Pages{0, 1, 2, 3, 4, 5}));
}

TEST_F(OrderOfTransfers, ExpeditesThePredecessorsOfOneThatIsInTheFirstLaneAlready) {
  submit(4, 2, Lane::kBank);
  const Ticket write = submit(1, 2, Lane::kWriteBack);
  const Ticket read = submit(3, 1, Lane::kWaited, {&write, 1});
  engine.expedite(read);
  EXPECT_EQ(finish(), (Pages{0, 1, 2, 3, 4, 5}));
}

TEST(QueuedEngine, KeepsNoMoreInFlightThanItsDepth) {
  std::atomic<int> in_flight{0};
  std::atomic<int> most{0};
  ThreadEngine engine({.block_bytes = kPageBytes, .queue_depth = 3, .threads = 8},
                      [&](IoRequest::Operation, int, std::span<std::byte> buffer, std::uint64_t) {
                        const int now = ++in_flight;
                        for (int seen = most; now > seen && !most.compare_exchange_weak(seen, now);) {
                        }
                        --in_flight;
                        return static_cast<std::int64_t>(buffer.size());
                      });
  const FileId file = engine.register_file(0, "made up");
  const offload::AlignedBlock memory(64 * kPageBytes);
  for (int i = 0; i < 64; ++i) {
    static_cast<void>(engine.submit(request(kWrite, file, 0, memory.bytes())));
  }
  engine.drain(kLong);
  EXPECT_LE(most, 3);
  EXPECT_GE(most, 1);
}

TEST(QueuedEngine, EndsARequestOnlyWhenAllItsChunksHave) {
  Gate gate;
  ThreadEngine engine({.block_bytes = kPageBytes, .queue_depth = 2, .threads = 2},
                      [&](IoRequest::Operation, int, std::span<std::byte> buffer, std::uint64_t offset) {
                        if (offset == 0) {
                          return std::int64_t{-EIO};
                        }
                        gate.pass();
                        return static_cast<std::int64_t>(buffer.size());
                      });
  const FileId file = engine.register_file(0, "made up");
  const offload::AlignedBlock memory(8 * kPageBytes);
  const Ticket held = engine.submit(request(kWrite, file, 32 * kPageBytes, memory.bytes().first(kPageBytes)));
  gate.wait_for(1);
  const Ticket ticket = engine.submit(request(kWrite, file, 0, memory.bytes()));
  EXPECT_THROW(ticket.wait(kLong), IoError);  // From here on the engine has failed.
  EXPECT_FALSE(held.done());
  gate.open();
  EXPECT_THROW(held.wait(kLong), IoError) << "it ended after the first failure";
}

TEST(QueuedEngine, FailsEverythingWithTheFirstErrorOnceIsFailed) {
  Gate gate;
  ThreadEngine engine(kOneAtATime, [&](IoRequest::Operation, int, std::span<std::byte>, std::uint64_t) {
    gate.pass();
    return std::int64_t{-EIO};
  });
  const FileId file = engine.register_file(0, "made up");
  const offload::AlignedBlock memory(4 * kPageBytes);
  std::vector<Ticket> tickets;
  for (std::uint64_t i = 0; i < 8; ++i) {  // Half of them come after another one.
    tickets.push_back(
        engine.submit(request(kWrite, file, i * 4 * kPageBytes, memory.bytes()), std::span(tickets).last(i % 2)));
  }
  gate.open();
  for (const Ticket& ticket : tickets) {
    try {
      ticket.wait(kLong);
      FAIL() << "it can't have succeeded";
    } catch (const IoError& error) {
      EXPECT_EQ(error.failure().offset, 0U) << "the error is another's";
      EXPECT_EQ(error.failure().error_number, EIO);
    }
  }
  EXPECT_THROW(engine.drain(kLong), IoError);
  EXPECT_THROW(static_cast<void>(engine.submit(request(kWrite, file, 0, memory.bytes()))), IoError);
}

TEST(QueuedEngine, RefusesOptionsOutOfRangeByName) {
  const auto message = [](const EngineOptions& options) -> std::string {
    try {
      const ThreadEngine engine(options);
    } catch (const ConfigError& error) {
      return error.what();
    }
    return {};
  };
  EXPECT_NE(message({.block_bytes = 0}).find("aio.block_size"), std::string::npos);
  EXPECT_NE(message({.block_bytes = 5000}).find("aio.block_size"), std::string::npos);
  EXPECT_NE(message({.block_bytes = std::uint64_t{2} << 30}).find("aio.block_size"), std::string::npos);
  EXPECT_NE(message({.queue_depth = 0}).find("aio.queue_depth"), std::string::npos);
  EXPECT_NE(message({.queue_depth = 5000}).find("aio.queue_depth"), std::string::npos);
  EXPECT_NE(message({.threads = 0}).find("thread"), std::string::npos);
  EXPECT_EQ(message({}), "");
}

TEST(QueuedEngineDeathTest, TakesWholePagesOnly) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  ThreadEngine engine({});
  const FileId file = engine.register_file(0, "made up");
  const offload::AlignedBlock memory(2 * kPageBytes);
  const auto submit = [&](std::uint64_t offset, std::span<std::byte> buffer) {
    static_cast<void>(engine.submit(request(kWrite, file, offset, buffer)));
  };
  EXPECT_DEATH(submit(512, memory.bytes()), "multiples of the page size");
  EXPECT_DEATH(submit(0, memory.bytes().first(100)), "multiples of the page size");
  EXPECT_DEATH(submit(0, memory.bytes().subspan(512, kPageBytes)), "multiples of the page size");
  EXPECT_DEATH(submit(0, {}), "at least one page");
}

/// What the n-th system call answers in the place of the truth.
struct SystemCallFault {
  const char* name;
  std::function<std::int64_t(std::size_t wanted)> answer;
  unsigned repeat;       ///< How many calls in a row meet it.
  int error_number = 0;  ///< Of the error that must come of it; meaningful where `survives` is false.
  bool survives = false;
};

std::vector<SystemCallFault> system_call_faults() {
  return {{"EIO", [](std::size_t) { return -EIO; }, 1, EIO},
          {"ENOSPC", [](std::size_t) { return -ENOSPC; }, 1, ENOSPC},
          {"end of file", [](std::size_t) { return 0; }, 1, 0},
          {"too long", [](std::size_t wanted) { return static_cast<std::int64_t>(wanted + 1); }, 1, 0},
          {"EAGAIN three times", [](std::size_t) { return -EAGAIN; }, 3, 0, true},
          {"EINTR", [](std::size_t) { return -EINTR; }, 1, 0, true},
          {"EAGAIN for ever", [](std::size_t) { return -EAGAIN; }, ~0U, EAGAIN},
          {"a broken page", [](std::size_t) { return 100; }, 1, 0, true},
          {"broken pages for ever", [](std::size_t) { return 100; }, ~0U, 0},
          {"half, and a broken page", [](std::size_t wanted) { return static_cast<std::int64_t>(wanted / 2 + 7); }, 1,
           0, true}};
}

/// Real transfers, of which the n-th and those after it meet a fault: moves what it claims to have moved, if possible.
class FaultAtNth {
 public:
  FaultAtNth(const SystemCallFault& fault, unsigned nth) : fault_(fault), nth_(nth) {}

  std::int64_t operator()(IoRequest::Operation operation, int fd, std::span<std::byte> buffer, std::uint64_t offset) {
    const unsigned call = ++calls_;
    if (call < nth_ || call - nth_ >= fault_.repeat) {
      return ThreadEngine::system_transfer(operation, fd, buffer, offset);
    }
    met_ = true;
    const std::int64_t answer = fault_.answer(buffer.size());
    if (answer > 0 && operation == kRead) {  // Garbage behind what is claimed must not survive.
      std::fill(buffer.begin(), buffer.end(), std::byte{0xAB});
    }
    if (answer >= static_cast<std::int64_t>(kPageBytes) && static_cast<std::size_t>(answer) < buffer.size()) {
      const std::size_t pages = static_cast<std::size_t>(answer) / kPageBytes * kPageBytes;
      EXPECT_EQ(ThreadEngine::system_transfer(operation, fd, buffer.first(pages), offset),
                static_cast<std::int64_t>(pages));
    }
    return answer;
  }
  bool met() const { return met_; }

 private:
  const SystemCallFault& fault_;
  const unsigned nth_;
  std::atomic<unsigned> calls_{0};
  std::atomic<bool> met_{false};
};

/// Writes and reads back a file. Returns the error number of the failure, or nothing if all went well.
std::optional<int> write_and_read(FaultAtNth& fault, unsigned threads) {
  constexpr std::uint64_t kBytes = 12 * kPageBytes;
  ScratchFile scratch(kBytes);
  const offload::AlignedBlock data = filled_block(kBytes, 1);
  const offload::AlignedBlock original = filled_block(kBytes, 1);
  const offload::AlignedBlock back(kBytes);
  ThreadEngine engine({.block_bytes = 4 * kPageBytes, .queue_depth = 4, .threads = threads}, std::ref(fault));
  const FileId file = engine.register_file(scratch.file.fd(), "scratch file");
  std::optional<int> error;
  try {
    const Ticket out = engine.submit(request(kWrite, file, 0, data.bytes()));
    engine.submit(request(kRead, file, 0, back.bytes()), {&out, 1}).wait(kLong);
    EXPECT_TRUE(same(back.bytes(), original.bytes()));
  } catch (const IoError& failure) {
    error = failure.failure().error_number;
    EXPECT_EQ(failure.failure().path, "scratch file");
    EXPECT_GT(failure.failure().bytes, 0U);
    EXPECT_LE(failure.failure().offset + failure.failure().bytes, kBytes);
    EXPECT_EQ(dynamic_cast<const OutOfSpace*>(&failure) != nullptr, *error == ENOSPC);
  }
  EXPECT_TRUE(same(data.bytes(), original.bytes())) << "what was to be written is not what it was";
  return error;
}

TEST(SystemCallFaults, AreMendedOrReportedWhicheverCallMeetsThem) {
  for (const unsigned threads : {1U, 4U}) {
    for (const SystemCallFault& kind : system_call_faults()) {
      bool met = true;
      unsigned nth = 1;
      for (; met; ++nth) {
        SCOPED_TRACE(std::string(kind.name) + " at call " + std::to_string(nth));
        FaultAtNth fault(kind, nth);
        const std::optional<int> error = write_and_read(fault, threads);
        met = fault.met();
        ASSERT_EQ(error, met && !kind.survives ? std::optional(kind.error_number) : std::nullopt);
      }
      EXPECT_EQ(nth, 8U) << "there are six chunks to move";
    }
  }
}

}  // namespace
}  // namespace spillway::test::queued_engine_test
