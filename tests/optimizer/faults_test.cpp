// Whatever the disk does, a run ends with the right weights or with an error, never with wrong weights.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>

#include <torch/optim/adamw.h>

#include <spillway/offload/error.hpp>

#include "optimizer/training.hpp"
#include "support/errors.hpp"
#include "support/memory_engine.hpp"

namespace spillway::test::faults_test {
namespace {

using Fate = MemoryEngine::Fate;
using ::testing::HasSubstr;

constexpr std::int64_t kSteps = 3;

// A streamed optimizer on a disk that the test rules.
struct Victim {
  Victim() {
    auto owned = std::make_unique<MemoryEngine>(MemoryEngine::Ending::kShuffled);
    engine = owned.get();
    OptimizerConfig config;
    config.tiers = std::make_shared<offload::Tiers>(offload::TiersOptions{}, std::move(owned));
    config.sub_group_numel = 200;
    config.buffer_count = 3;
    optimizer = wrap(adamw().make(weights), config);
  }

  void train() {
    for (std::int64_t step = 0; step < kSteps; ++step) {
      gradients.give(weights, step);
      optimizer->prefetch();
      optimizer->step();
    }
    optimizer->flush();
  }

  TensorGroups weights = odd_parameters();
  Gradients gradients{512};
  MemoryEngine* engine = nullptr;
  std::unique_ptr<Optimizer> optimizer;
};

TensorGroups expected_weights() {
  TensorGroups weights = odd_parameters();
  const auto optimizer = adamw().make(weights);
  const Gradients gradients(512);
  for (std::int64_t step = 0; step < kSteps; ++step) {
    gradients.give(weights, step);
    optimizer->step();
  }
  return weights;
}

std::uint64_t transfers_without_fault() {
  Victim victim;
  victim.train();
  return victim.engine->submitted();
}

// Lets each transfer in turn meet its fate. @returns how many runs ended with an error.
std::uint64_t meet_at_each_transfer(Fate fate, bool for_good) {
  const TensorGroups expected = expected_weights();
  const std::uint64_t transfers = transfers_without_fault();
  std::uint64_t errors = 0;
  for (std::uint64_t fatal = 1; fatal <= transfers; ++fatal) {
    SCOPED_TRACE("transfer " + std::to_string(fatal));
    Victim victim;
    victim.engine->set_fate(
        [=](std::uint64_t number, const offload::IoRequest&) { return number == fatal ? fate : Fate::kDone; },
        for_good);
    std::string reason;
    try {
      victim.train();
    } catch (const Error& error) {
      reason = error.what();
    }
    if (reason.empty()) {
      EXPECT_EQ(differences(victim.weights, expected), "");
      continue;
    }
    ++errors;
    EXPECT_THAT(message_of<Error>([&] { victim.optimizer->step(); }),
                ::testing::AllOf(HasSubstr("unusable"), HasSubstr(reason)));
    EXPECT_THAT(message_of<Error>([&] { victim.optimizer->flush(); }), HasSubstr(reason));
    victim.optimizer->zero_grad();  // Does not throw: it works on the gradients.
  }
  EXPECT_GT(transfers, 10U);
  return errors;
}

TEST(AFailedTransfer, EndsInAnErrorThatNoLaterStepForgets) {
  EXPECT_EQ(meet_at_each_transfer(Fate::kFailed, /*for_good=*/true), transfers_without_fault());
}

TEST(AFailedTransfer, IsNoLessAnErrorWhereTheDiskMendsItself) {
  EXPECT_EQ(meet_at_each_transfer(Fate::kFailed, /*for_good=*/false), transfers_without_fault());
}

TEST(ALostWrite, IsFoundWhenItsBlockComesBack) { EXPECT_GT(meet_at_each_transfer(Fate::kLost, false), 0U); }

TEST(AMisdirectedWrite, IsFoundWhenItsBlockComesBack) {
  EXPECT_GT(meet_at_each_transfer(Fate::kMisdirected, false), 0U);
}

TEST(AStepThatLibTorchRefusesHalfWay, LeavesNoStateBehindAndAnUnusableOptimizer) {
  Victim victim;
  victim.gradients.give(victim.weights, 0);
  at::Tensor& last = victim.weights[1][3];
  last.mutable_grad() = victim.gradients.make(victim.weights[0][0], 0, 0);  // Of another shape.
  std::string reason;
  try {
    victim.optimizer->step();
  } catch (const std::exception& error) {
    reason = error.what();
  }
  ASSERT_THAT(reason, HasSubstr("size"));
  EXPECT_THAT(message_of<Error>([&] { victim.optimizer->step(); }), HasSubstr("checkpoint"));
  for (const auto& entry : victim.optimizer->wrapped().state()) {
    const auto& state = static_cast<const torch::optim::AdamWParamState&>(*entry.second);
    EXPECT_TRUE(!state.exp_avg().defined() || state.exp_avg().numel() == 0)
        << "points into a block that was given back";
  }
}

}  // namespace
}  // namespace spillway::test::faults_test
