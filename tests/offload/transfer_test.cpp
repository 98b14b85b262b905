#include <spillway/offload/transfer.hpp>

#include <gtest/gtest.h>

#include <cerrno>
#include <string>

namespace spillway::offload::transfer_test {
namespace {

constexpr std::uint64_t kWant = 4 * kPageBytes;

TEST(Transfer, IsCompleteOnceAllHasMoved) {
  TransferProgress progress{.want_bytes = kWant};
  EXPECT_EQ(advance(progress, kWant), TransferStep::kComplete);
  EXPECT_EQ(progress.done_bytes, kWant);
}

TEST(Transfer, ContinuesAShortOneWhereItEnded) {
  TransferProgress progress{.want_bytes = kWant};
  EXPECT_EQ(advance(progress, kPageBytes), TransferStep::kAgain);
  EXPECT_EQ(progress.done_bytes, kPageBytes);
  EXPECT_EQ(advance(progress, 3 * kPageBytes), TransferStep::kComplete);
}

TEST(Transfer, MovesABrokenPageAgainBecauseDirectIoStartsAtPages) {
  TransferProgress progress{.want_bytes = kWant};
  EXPECT_EQ(advance(progress, kPageBytes + 100), TransferStep::kAgain);
  EXPECT_EQ(progress.done_bytes, kPageBytes);
  EXPECT_EQ(advance(progress, 2 * kPageBytes + 4095), TransferStep::kAgain);
  EXPECT_EQ(progress.done_bytes, 3 * kPageBytes);
  EXPECT_EQ(advance(progress, kPageBytes), TransferStep::kComplete);
}

TEST(Transfer, RepeatsAnInterruptedOneAsOftenAsIsAllowed) {
  for (const int error : {EINTR, EAGAIN}) {
    TransferProgress progress{.want_bytes = kWant};
    for (unsigned i = 1; i < kIdleTriesMax; ++i) {
      EXPECT_EQ(advance(progress, -error), TransferStep::kAgain) << i;
    }
    EXPECT_EQ(advance(progress, -error), TransferStep::kFailed);
    EXPECT_EQ(progress.done_bytes, 0U);
  }
}

TEST(Transfer, GivesUpOnPiecesThatNeverMakeAPage) {
  TransferProgress progress{.want_bytes = kWant};
  for (unsigned i = 1; i < kIdleTriesMax; ++i) {
    EXPECT_EQ(advance(progress, 100), TransferStep::kAgain) << i;
  }
  EXPECT_EQ(advance(progress, 100), TransferStep::kFailed);
}

TEST(Transfer, CountsOnlyTriesInARow) {
  TransferProgress progress{.want_bytes = 100 * kPageBytes};
  for (unsigned page = 0; page < 99; ++page) {
    for (unsigned i = 1; i < kIdleTriesMax; ++i) {
      ASSERT_EQ(advance(progress, -EAGAIN), TransferStep::kAgain);
    }
    ASSERT_EQ(advance(progress, kPageBytes), TransferStep::kAgain);
  }
  EXPECT_EQ(advance(progress, kPageBytes), TransferStep::kComplete);
}

TEST(Transfer, FailsWhereNothingMoved) {
  TransferProgress progress{.want_bytes = kWant};
  EXPECT_EQ(advance(progress, 0), TransferStep::kFailed);
}

TEST(Transfer, FailsWhereMoreMovedThanWasAskedFor) {
  TransferProgress progress{.want_bytes = kWant};
  EXPECT_EQ(advance(progress, kWant + 1), TransferStep::kFailed);
  progress = {.want_bytes = kWant, .done_bytes = kPageBytes};
  EXPECT_EQ(advance(progress, kWant), TransferStep::kFailed);
}

TEST(Transfer, FailsAtOnceForEveryOtherError) {
  for (int error = 1; error < 134; ++error) {
    if (error != EINTR && error != EAGAIN) {
      TransferProgress progress{.want_bytes = kWant};
      EXPECT_EQ(advance(progress, -error), TransferStep::kFailed) << error;
      EXPECT_EQ(progress.done_bytes, 0U);
    }
  }
}

TEST(TransferFailure, NamesOperationPlaceBytesErrorAndAdvice) {
  const FailurePtr failure =
      make_transfer_failure(IoRequest::Operation::kWrite, "swap file in /data", 8192, 4096, -EIO);
  try {
    throw_io_failure(*failure);
    FAIL() << "nothing was thrown";
  } catch (const OutOfSpace&) {
    FAIL() << "EIO is not about space";
  } catch (const IoError& error) {
    EXPECT_EQ(error.failure().error_number, EIO);
    const std::string text = error.what();
    for (const char* part : {"write of 4096 bytes at offset 8192 in swap file in /data", "errno 5", "dmesg"}) {
      EXPECT_NE(text.find(part), std::string::npos) << text;
    }
  }
}

TEST(TransferFailure, IsOutOfSpaceForAFullDiskOrQuota) {
  for (const int error : {ENOSPC, EDQUOT}) {
    EXPECT_THROW(throw_io_failure(*make_transfer_failure(IoRequest::Operation::kWrite, "f", 0, 4096, -error)),
                 OutOfSpace);
  }
}

TEST(TransferFailure, HasNoErrorNumberWhereThereWasNone) {
  for (const std::int64_t result : {std::int64_t{0}, std::int64_t{100}, std::int64_t{8192}}) {
    const FailurePtr failure = make_transfer_failure(IoRequest::Operation::kRead, "f", 0, 4096, result);
    EXPECT_EQ(failure->error_number, 0);
    EXPECT_FALSE(failure->advice.empty());
  }
}

}  // namespace
}  // namespace spillway::offload::transfer_test
