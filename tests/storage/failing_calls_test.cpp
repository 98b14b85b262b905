// Every call of the file system that writing a checkpoint makes fails in turn, once or for good.
#include <cerrno>
#include <filesystem>
#include <string>

#include <gtest/gtest.h>

#include <spillway/offload/error.hpp>

#include "storage/recorded_calls.hpp"
#include "storage/saved_steps.hpp"
#include "support/temp_dir.hpp"

namespace spillway::test::failing_calls_test {
namespace {

namespace fs = std::filesystem;

struct Case {
  const char* name;
  int error_number;
  bool for_good;
};

class FailingCalls : public ::testing::TestWithParam<Case> {};

/// Saves step 3 into a folder that has 1 and 2, with a fault. @returns whether the fault was met.
bool save_with(const fs::path& root, const CallFault& fault) {
  RecordedCalls calls(root, fault);
  bool saved = false;
  try {
    save_step(root, 3);
    saved = true;
  } catch (const IoError&) {
  }
  EXPECT_FALSE(calls.synced_after_failure());
  const ResumedStep resumed = resume_step(root);
  EXPECT_EQ(resumed.wrong + resumed.skipped, "");
  if (saved) {
    EXPECT_EQ(resumed.step, 3U);
  }
  EXPECT_GE(resumed.step, 2U);
  return calls.made() >= fault.call;
}

TEST_P(FailingCalls, LeaveTheCheckpointsBeforeAndTheNextAttempt) {
  std::uint64_t faults = 0;
  for (std::uint64_t call = 1;; ++call) {
    SCOPED_TRACE("call " + std::to_string(call));
    const TempDir folder;
    const fs::path root = folder / "checkpoints";
    for (const std::uint64_t step : {1, 2}) save_step(root, step);
    if (!save_with(root, {call, GetParam().error_number, GetParam().for_good})) break;
    ++faults;
    save_step(root, 4);
    EXPECT_EQ(resume_step(root).step, 4U);
    for (const auto& entry : fs::directory_iterator(root)) EXPECT_NE(entry.path().extension(), ".partial") << entry;
    ASSERT_FALSE(HasFailure());
  }
  RecordProperty("faults", std::to_string(faults));
  EXPECT_GE(faults, 15U) << "calls that were made to fail";
}

INSTANTIATE_TEST_SUITE_P(All, FailingCalls,
                         ::testing::Values(Case{"NoSpaceOnce", ENOSPC, false}, Case{"NoSpaceForGood", ENOSPC, true},
                                           Case{"EioOnce", EIO, false}, Case{"EioForGood", EIO, true},
                                           Case{"HalfAWriteOnce", 0, false}),
                         [](const auto& which) { return which.param.name; });

}  // namespace
}  // namespace spillway::test::failing_calls_test
