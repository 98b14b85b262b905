#include <spillway/optimizer/gradient_rounds.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include <ATen/ops/full.h>

namespace spillway::optimizer::gradient_rounds_test {
namespace {

using ::testing::ElementsAre;

// Three parameters in two buckets: {2} and {1, 0}. Each gradient is a number.
class Rounds : public ::testing::Test {
 protected:
  Rounds() {
    plan_.append(std::vector<PlannedParameter>{{1, 4}, {1, 4}, {1, 8}});
    rounds_ = std::make_unique<GradientRounds>(
        plan_, [this](std::size_t parameter) { return parameter != frozen_; },
        [this](std::size_t bucket, std::vector<at::Tensor> gradients) {
          std::string text = std::to_string(bucket) + ":";
          for (const at::Tensor& gradient : gradients) {
            text += gradient.defined() ? " " + std::to_string(gradient.item<int>()) : " -";
          }
          launched_.push_back(text);
        });
  }

  void take(std::size_t parameter, int gradient) { rounds_->take(parameter, at::full({}, gradient, at::kInt)); }

  std::size_t frozen_ = 99;
  ShardPlan plan_{{.weights = {1.0}, .bucket_bytes = 8}};
  std::vector<std::string> launched_;
  std::unique_ptr<GradientRounds> rounds_;
};

TEST_F(Rounds, LaunchABucketAsSoonAsItAndThoseBeforeItAreComplete) {
  take(0, 10);
  take(1, 11);
  EXPECT_THAT(launched_, ElementsAre());  // Complete, but not its turn.
  take(2, 12);
  EXPECT_THAT(launched_, ElementsAre("0: 12", "1: 11 10"));
  rounds_->end();
  EXPECT_EQ(rounds_->completed(), 1U);
  EXPECT_EQ(launched_.size(), 2U);
}

TEST_F(Rounds, FlushWhatIsMissingAtTheirEnd) {
  take(1, 11);
  rounds_->end();
  EXPECT_THAT(launched_, ElementsAre("0: -", "1: 11 -"));
}

TEST_F(Rounds, DoNotWaitForAFrozenParameter) {
  frozen_ = 0;
  take(2, 12);
  take(1, 11);
  EXPECT_THAT(launched_, ElementsAre("0: 12", "1: 11 -"));
}

TEST_F(Rounds, KeepASecondGradientForTheNextRoundWhetherItsBucketHasLeftOrNot) {
  take(2, 12);
  take(2, 22);  // Has left.
  take(1, 11);
  take(1, 21);  // Has not.
  take(1, 31);
  take(0, 10);
  rounds_->end();
  EXPECT_THAT(launched_, ElementsAre("0: 12", "1: 11 10", "0: 22", "1: 21 -", "0: -", "1: 31 -"));
  EXPECT_EQ(rounds_->completed(), 3U);
}

TEST_F(Rounds, CanBeEmpty) {
  rounds_->run_empty();
  EXPECT_THAT(launched_, ElementsAre("0: -", "1: - -"));
  rounds_->end();  // None is open: nothing happens.
  EXPECT_EQ(rounds_->completed(), 1U);
}

}  // namespace
}  // namespace spillway::optimizer::gradient_rounds_test
