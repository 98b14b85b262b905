#include <spillway/app/report/progress.hpp>

#include <sstream>
#include <string>

#include <fcntl.h>
#include <unistd.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <spillway/offload/unique_fd.hpp>

namespace spillway::app::progress_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

StepMetrics step(std::uint64_t number) {
  return {.step = number, .loss = 1.25, .step_s = 2.0, .stall_s = 0.5, .samples_per_s = 640, .host_bytes = 30};
}

std::ptrdiff_t count(const std::string& text, char c) { return std::ranges::count(text, c); }

TEST(Progress, WritesPlainLinesOfTheFirstTheLastAndEveryNthStepWhereThereIsNoTerminal) {
  std::ostringstream out;
  Progress progress(out, {.total_steps = 11, .steps_per_print = 5, .host_budget_bytes = 60});
  for (std::uint64_t number = 1; number <= 11; ++number) {
    progress.step(step(number));
  }
  progress.finish();
  const std::string text = out.str();
  EXPECT_EQ(count(text, '\n'), 4) << text;
  EXPECT_EQ(count(text, '\r'), 0);
  for (const char* shown : {"step 1/11", "step 5/11", "step 10/11", "step 11/11"}) {
    EXPECT_THAT(text, HasSubstr(shown));
  }
}

TEST(Progress, ShowsLossSpeedStallOccupancyAndTimeLeft) {
  std::ostringstream out;
  Progress progress(out, {.total_steps = 31, .steps_per_print = 1, .host_budget_bytes = 60});
  progress.step(step(1));
  EXPECT_THAT(out.str(), AllOf(HasSubstr("loss 1.2500"), HasSubstr("640 samples/s"), HasSubstr("stall 25.0 %"),
                               HasSubstr("host 50 %"), HasSubstr("left 1:00")));
  EXPECT_THAT(out.str(), Not(HasSubstr("disk"))) << "a tier without a budget takes no part";
}

TEST(Progress, RedrawsABarInPlaceThatNeverFillsTheLine) {
  constexpr unsigned kColumns = 50;
  std::ostringstream out;
  Progress progress(out, {.columns = kColumns, .total_steps = 4});
  for (std::uint64_t number = 1; number <= 4; ++number) {
    progress.step(step(number));
  }
  const std::string text = out.str();
  EXPECT_EQ(count(text, '\n'), 0);
  EXPECT_EQ(count(text, '\r'), 4);
  EXPECT_THAT(text, AllOf(HasSubstr("[#####...............] 1/4"), HasSubstr("[####################] 4/4")));
  const std::size_t first = text.find('\r') + 1;
  EXPECT_EQ(text.find("\x1b[K", first) - first, kColumns - 1);
}

TEST(Progress, DoesNotRedrawMoreOftenThanAnEyeCanFollow) {
  std::ostringstream out;
  Progress progress(out, {.columns = 80, .total_steps = 1000});
  StepMetrics quick = step(1);
  quick.step_s = 0.001;
  for (; quick.step <= 500; ++quick.step) {
    progress.step(quick);
  }
  EXPECT_LE(count(out.str(), '\r'), 6);
}

TEST(Progress, ClearsTheBarForAMessageAndEndsItsLineOnce) {
  std::ostringstream out;
  Progress progress(out, {.columns = 80, .total_steps = 2});
  progress.step(step(1));
  progress.message("a note");
  EXPECT_THAT(out.str(), ::testing::EndsWith("\r\x1b[Ka note\n"));
  progress.step(step(2));
  progress.finish();
  progress.finish();
  EXPECT_EQ(count(out.str(), '\n'), 2);
}

TEST(Progress, KnowsATerminalFromAFile) {
  const offload::UniqueFd file = offload::UniqueFd::adopt(::open("/dev/null", O_RDWR | O_CLOEXEC));
  EXPECT_EQ(terminal_columns(file.get()), std::nullopt);
  const offload::UniqueFd terminal = offload::UniqueFd::adopt(::posix_openpt(O_RDWR | O_NOCTTY));
  ASSERT_GE(terminal.get(), 0);
  ASSERT_EQ(::grantpt(terminal.get()), 0);
  EXPECT_EQ(terminal_columns(terminal.get()), 80U) << "a terminal that does not know its width";
}

}  // namespace
}  // namespace spillway::app::progress_test
