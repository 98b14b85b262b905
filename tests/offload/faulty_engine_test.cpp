#include "support/faulty_engine.hpp"

#include <gtest/gtest.h>

#include <cerrno>
#include <string>

#include <spillway/offload/error.hpp>
#include <spillway/offload/thread_engine.hpp>

#include "offload/engine_fixture.hpp"

namespace spillway::test::faulty_engine_test {
namespace {

using offload::FileId;
using offload::kPageBytes;
using offload::Ticket;

class FaultyEngineTest : public testing::Test {
 protected:
  Ticket write(std::uint64_t page, std::span<std::byte> memory, std::span<const Ticket> after = {}) {
    return engine.submit(request(kWrite, file, page * kPageBytes, memory), after);
  }
  Ticket read(std::uint64_t page, std::span<std::byte> memory, std::span<const Ticket> after = {}) {
    return engine.submit(request(kRead, file, page * kPageBytes, memory), after);
  }
  /// Bits in which what lies in the file differs from `expected`.
  unsigned bits_that_differ(std::uint64_t page, std::span<const std::byte> expected) {
    const offload::AlignedBlock back(expected.size());
    read(page, back.bytes()).wait(kLong);
    unsigned bits = 0;
    for (std::size_t i = 0; i < expected.size(); ++i) {
      bits += static_cast<unsigned>(__builtin_popcount(std::to_integer<unsigned>(expected[i] ^ back.bytes()[i])));
    }
    return bits;
  }

  ScratchFile scratch{64 * kPageBytes};
  offload::AlignedBlock data = filled_block(4 * kPageBytes, 1);
  FaultyEngine engine{std::make_unique<offload::ThreadEngine>(offload::EngineOptions{.block_bytes = kPageBytes}), 7};
  FileId file = engine.register_file(scratch.file.fd(), "scratch file");
};

TEST_F(FaultyEngineTest, FailsTheOneThatIsAskedForAndEverythingAfterIt) {
  engine.inject({.kind = FaultKind::kFail, .nth = 3, .only = kWrite, .error_number = ENOSPC});
  write(0, data.bytes()).wait(kLong);
  read(0, data.bytes()).wait(kLong);
  write(4, data.bytes()).wait(kLong);
  const Ticket failed = write(8, data.bytes());
  EXPECT_THROW(failed.wait(kLong), OutOfSpace);
  EXPECT_THROW(static_cast<void>(read(0, data.bytes())), OutOfSpace);
  EXPECT_THROW(engine.drain(kLong), OutOfSpace);
  ASSERT_EQ(engine.log().size(), 1U);
  EXPECT_EQ(engine.log()[0], "fail transfer 4: write of 16384 bytes at offset 32768");
}

TEST_F(FaultyEngineTest, DelaysUntilItIsTold) {
  engine.inject({.kind = FaultKind::kDelay, .nth = 1, .only = {}});
  const Ticket delayed = write(0, data.bytes());
  const Ticket behind = read(0, data.bytes(), {&delayed, 1});
  write(8, data.bytes()).wait(kLong);
  EXPECT_FALSE(delayed.done());
  EXPECT_FALSE(behind.done());
  EXPECT_THROW(engine.drain(std::chrono::milliseconds(1)), TimedOut);
  engine.release_delayed();
  behind.wait(kLong);
  engine.drain(kLong);
}

TEST_F(FaultyEngineTest, FlipsOneBitOfWhatIsReadOrOnTheDiskOfWhatIsWritten) {
  const offload::AlignedBlock original = filled_block(4 * kPageBytes, 1);
  engine.inject({.kind = FaultKind::kCorrupt, .nth = 1, .only = kWrite});
  write(0, data.bytes()).wait(kLong);
  EXPECT_TRUE(same(data.bytes(), original.bytes()));
  EXPECT_EQ(bits_that_differ(0, original.bytes()), 1U);
  write(0, data.bytes()).wait(kLong);
  EXPECT_EQ(bits_that_differ(0, original.bytes()), 0U);
  engine.inject({.kind = FaultKind::kCorrupt, .nth = 1, .for_good = true, .only = kRead});
  EXPECT_EQ(bits_that_differ(0, original.bytes()), 1U);
  EXPECT_EQ(bits_that_differ(0, original.bytes()), 1U);
}

TEST_F(FaultyEngineTest, LosesTearsAndMisdirectsWrites) {
  const offload::AlignedBlock later = filled_block(4 * kPageBytes, 2);
  write(0, data.bytes()).wait(kLong);
  write(8, data.bytes()).wait(kLong);
  engine.inject({.kind = FaultKind::kLose, .nth = 1, .only = kWrite});
  write(0, later.bytes()).wait(kLong);
  EXPECT_EQ(bits_that_differ(0, data.bytes()), 0U);
  engine.inject({.kind = FaultKind::kTear, .nth = 1, .only = kWrite});
  write(0, later.bytes()).wait(kLong);
  EXPECT_EQ(bits_that_differ(0, later.bytes().first(2 * kPageBytes)), 0U);
  EXPECT_EQ(bits_that_differ(2, data.bytes().last(2 * kPageBytes)), 0U);
  read(8, data.bytes()).wait(kLong);
  engine.inject({.kind = FaultKind::kMisdirect, .nth = 1, .only = kWrite});
  write(0, later.bytes()).wait(kLong);
  EXPECT_EQ(bits_that_differ(8, later.bytes()), 0U);
  EXPECT_EQ(engine.log().size(), 3U);
}

TEST_F(FaultyEngineTest, DrawsTheSameFaultsFromTheSameSeed) {
  const auto faults = [&](std::uint64_t seed) {
    FaultyEngine one(std::make_unique<offload::ThreadEngine>(offload::EngineOptions{}), seed);
    const FileId its_file = one.register_file(scratch.file.fd(), "scratch file");
    one.inject_at_random(FaultKind::kLose, 4);
    for (int i = 0; i < 64; ++i) {
      one.submit(request(kWrite, its_file, 0, data.bytes()), {}).wait(kLong);
    }
    return one.log();
  };
  EXPECT_EQ(faults(1), faults(1));
  EXPECT_NE(faults(1), faults(2));
  EXPECT_GT(faults(1).size(), 4U);
  EXPECT_LT(faults(1).size(), 32U);
}

TEST_F(FaultyEngineTest, MeetsAFaultNotBeforeWhatTheTransferComesAfter) {
  engine.inject({.kind = FaultKind::kDelay, .nth = 1, .only = {}});
  engine.inject({.kind = FaultKind::kFail, .nth = 2, .only = {}});
  const Ticket delayed = write(0, data.bytes());
  const Ticket failing = read(0, data.bytes(), {&delayed, 1});
  EXPECT_FALSE(failing.done());
  engine.release_delayed();
  delayed.wait(kLong);
  EXPECT_THROW(failing.wait(kLong), IoError);
}

}  // namespace
}  // namespace spillway::test::faulty_engine_test
