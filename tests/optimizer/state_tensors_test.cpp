// The state tensor by tensor, out of one optimizer and into another.

#include <cerrno>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <spillway/offload/error.hpp>

#include "optimizer/saved_state.hpp"
#include "optimizer/wrapped_fixture.hpp"
#include "support/errors.hpp"

namespace spillway::test::state_tensors_test {
namespace {

using ::testing::HasSubstr;

class StateTensors : public Wrapped {
 protected:
  OptimizerConfig config_in(StateDevice device) const {
    OptimizerConfig config = streaming_config();
    config.state = device;
    return config;
  }

  // Steps 0 to 11, with the state carried over to another optimizer of `to` after step 5, against one that goes on.
  void expect_carried_over(const Recipe& recipe, const OptimizerConfig& from, const OptimizerConfig& to) {
    TensorGroups weights = odd_parameters();
    const auto first = wrap(recipe.make(weights), from);
    const auto advance = [&](Optimizer& optimizer, const TensorGroups& of, std::int64_t begin, std::int64_t end) {
      for (std::int64_t step = begin; step < end; ++step) {
        gradients_.give(of, step);
        optimizer.step();
      }
    };
    advance(*first, weights, 0, 6);
    const SavedState saved = save_state(*first);
    EXPECT_LT(saved.counters.size(), 40'000U) << "the archive of the counters holds tensors";
    const TensorGroups carried = clone(weights);
    const auto second = wrap(recipe.make(carried), to);
    restore_state(*second, saved);
    advance(*first, weights, 6, 12);
    advance(*second, carried, 6, 12);
    EXPECT_EQ(differences(carried, weights), "") << recipe.name;

    // The control: without the tensors it ends elsewhere.
    const TensorGroups forgotten = odd_parameters();
    const auto fresh = wrap(recipe.make(forgotten), to);
    advance(*fresh, forgotten, 6, 12);
    EXPECT_NE(differences(forgotten, weights), "");
  }
};

TEST_F(StateTensors, CarryARunFromAnyTierToAnyOther) {
  for (const Recipe& recipe : one_of_each_kind()) {
    for (const StateDevice from : {StateDevice::kNone, StateDevice::kCpu, StateDevice::kNvme}) {
      for (const StateDevice to : {StateDevice::kNone, StateDevice::kNvme}) {
        expect_carried_over(recipe, config_in(from), config_in(to));
      }
    }
  }
}

TEST_F(StateTensors, CarryWhatKernelsKeepBitForBit) {
  for (const StateFormat format : {StateFormat::kFloat32, StateFormat::kBlockwise8}) {
    OptimizerConfig config = streaming_config();
    config.kernels = UpdateKernels::kFused;
    config.state_format = format;
    expect_carried_over(adamw(), config, config);
  }
}

// As a checkpoint does whose disk is full.
TEST_F(StateTensors, LeaveAllAsItWasWhereWhoeverIsShownThemThrows) {
  start(adamw());
  step_both(2);
  const std::size_t tensors = save_state(*optimizer_).tensors.size();
  for (std::size_t good = 0; good < tensors; good += 3) {
    std::size_t shown = 0;
    EXPECT_THAT(message_of<IoError>([&] {
                  optimizer_->visit_state([&](const std::string& name, const at::Tensor&) {
                    if (shown++ == good)
                      throw IoError({.operation = "write", .path = name, .error_number = ENOSPC, .advice = {}});
                  });
                }),
                HasSubstr("No space left"));
    step_both(1);
  }
  expect_equal();
}

TEST_F(StateTensors, NameWhatIsMissing) {
  start(adamw());
  step_both(2);
  SavedState saved = save_state(*optimizer_);
  saved.tensors.erase("0/0.exp_avg_sq");
  EXPECT_THAT(message_of<Error>([&] { restore_state(*optimizer_, saved); }), HasSubstr("0/0.exp_avg_sq"));
  gradients_.give(weights_, 3);
  EXPECT_THROW(optimizer_->step(), Error) << "a part of the state may have been replaced";
}

TEST_F(StateTensors, NameWhatIsOfAnotherSize) {
  start(adamw());
  step_both(2);
  SavedState saved = save_state(*optimizer_);
  saved.tensors["0/0.exp_avg"] = saved.tensors["0/0.exp_avg"].flatten();
  EXPECT_THAT(message_of<Error>([&] { restore_state(*optimizer_, saved); }), HasSubstr("0/0.exp_avg "));
}

}  // namespace
}  // namespace spillway::test::state_tensors_test
