#include <gtest/gtest.h>

#include <algorithm>
#include <utility>

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros_like.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/sgd.h>

#include <spillway/offload/budget.hpp>
#include <spillway/offload/error.hpp>
#include <spillway/optimizer/state_layout.hpp>

#include "support/property.hpp"

namespace spillway::optimizer::state_layout_test {
namespace {

class StateLayout : public ::testing::Test {
 protected:
  ParameterSlot slot(const at::Tensor& parameter, FieldMask planned = 0b11) const {
    return make_slot(parameter, "parameter", planned, fields_, nullptr);
  }
  std::vector<ParameterSlot> slots(const std::vector<std::int64_t>& numels) const {
    std::vector<ParameterSlot> result;
    for (const std::int64_t numel : numels) {
      result.push_back(slot(at::empty({numel})));
    }
    return result;
  }

  torch::optim::AdamW optimizer_{std::vector<at::Tensor>{}};
  const StateFields& fields_ = *find_state_fields(optimizer_);
};

std::vector<std::size_t> sizes(const std::vector<SubGroup>& groups) {
  std::vector<std::size_t> result;
  for (const SubGroup& group : groups) {
    result.push_back(group.slots.size());
  }
  return result;
}

TEST_F(StateLayout, CutsWhenTheLimitWouldBeExceeded) {
  EXPECT_EQ(sizes(pack(slots({40, 60, 1, 99, 100}), {.numel = 100}, 0)), (std::vector<std::size_t>{2, 2, 1}));
  EXPECT_EQ(sizes(pack(slots({16, 16, 16}), {.bytes = 256}, 0)), (std::vector<std::size_t>{2, 1}));
}

TEST_F(StateLayout, GivesAParameterAboveTheLimitASubGroupOfItsOwn) {
  EXPECT_EQ(sizes(pack(slots({10, 500, 10}), {.numel = 100}, 0)), (std::vector<std::size_t>{1, 1, 1}));
}

TEST_F(StateLayout, CountsParametersWithoutStateAsNothing) {
  auto mixed = slots({100, 0, 100});
  mixed.insert(mixed.begin() + 1, slot(at::empty({1000}), 0));
  EXPECT_EQ(sizes(pack(std::move(mixed), {.numel = 100}, 0)), (std::vector<std::size_t>{3, 1}));
}

// Control: without the gap they are.
TEST_F(StateLayout, KeepsFieldsOfLargePowersOfTwoFromAliasing) {
  for (const std::int64_t numel : {std::int64_t{1} << 24, std::int64_t{1} << 26}) {
    auto some = slots({numel});
    some.front().master = FieldSlot();
    some.front().master->bytes = 4 * static_cast<std::uint64_t>(numel);
    const auto groups = pack(std::move(some), {}, 0);
    const ParameterSlot& slot = groups.front().slots.front();
    const std::vector<std::uint64_t> offsets{slot.fields[0].offset, slot.fields[1].offset, slot.master->offset};
    for (const auto& [a, b] : {std::pair{0, 1}, std::pair{1, 2}, std::pair{0, 2}}) {
      const std::uint64_t apart = (offsets[b] - offsets[a]) % (1U << 28U);
      EXPECT_GE(std::min<std::uint64_t>(apart, (1U << 28U) - apart), 64U << 10U) << numel;
    }
    EXPECT_GE(groups.front().bytes, offsets[2] + slot.master->bytes);
  }
}

TEST_F(StateLayout, NumbersSubGroupsFromTheOneGiven) {
  const auto groups = pack(slots({100, 100}), {.numel = 100}, 7);
  EXPECT_EQ(groups[0].label, "sub-group 7");
  EXPECT_EQ(groups[1].label, "sub-group 8");
}

TEST_F(StateLayout, NeverLetsTensorsOverlapAndAlignsThem) {
  test::for_random_seeds(50, [&](test::Random& random) {
    std::vector<ParameterSlot> some;
    for (std::uint64_t i = random.between(1, 40); i > 0; --i) {
      const auto type = random.chance(1, 2) ? at::kFloat : at::kBFloat16;
      some.push_back(slot(at::empty({static_cast<std::int64_t>(random.below(300))}, type),
                          static_cast<FieldMask>(random.below(8))));
    }
    const std::size_t count = some.size();
    std::size_t seen = 0;
    for (const SubGroup& group : pack(std::move(some), {.numel = random.between(1, 1000)}, 0)) {
      std::uint64_t end = 0;
      for (const ParameterSlot& one : group.slots) {
        ++seen;
        for (const FieldSlot& field : one.fields) {
          EXPECT_EQ(field.offset % 64, 0U);
          EXPECT_GE(field.offset, end);
          EXPECT_EQ(field.bytes, one.parameter.nbytes());
          end = field.offset + field.bytes;
        }
      }
      EXPECT_LE(end, group.bytes);
    }
    EXPECT_EQ(seen, count);
  });
}

TEST_F(StateLayout, HasTheStridesThatLibTorchWouldChoose) {
  const at::Tensor dense = at::empty({6, 4}).t();
  const at::Tensor last = at::empty({2, 3, 4, 5}).contiguous(at::MemoryFormat::ChannelsLast);
  const at::Tensor sliced = at::empty({6, 8}).narrow(1, 0, 3);
  const at::Tensor expanded = at::empty({6, 1}).expand({6, 4});
  for (const at::Tensor& parameter : {dense, last, sliced, expanded}) {
    EXPECT_EQ(slot(parameter).fields.at(0).strides, at::zeros_like(parameter).strides().vec());
  }
}

TEST_F(StateLayout, HasTheStridesOfStateThatExists) {
  torch::optim::AdamWParamState state;
  const at::Tensor parameter = at::empty({4, 6});
  state.exp_avg(at::empty({6, 4}).t()).exp_avg_sq(at::empty({4, 6}));
  const ParameterSlot made = make_slot(parameter, "parameter", 0b11, fields_, &state);
  EXPECT_EQ(made.fields.at(0).strides, (std::vector<std::int64_t>{1, 4}));
  EXPECT_EQ(made.fields.at(1).strides, (std::vector<std::int64_t>{6, 1}));
}

TEST_F(StateLayout, KeepsRoomForStateThatExistsThoughTheOptionsDoNotAskForIt) {
  torch::optim::AdamWParamState state;
  const at::Tensor parameter = at::empty({4});
  state.exp_avg(at::empty({4})).exp_avg_sq(at::empty({4})).max_exp_avg_sq(at::empty({4}));
  EXPECT_EQ(make_slot(parameter, "parameter", 0b11, fields_, &state).planned, 0b111U);
}

TEST_F(StateLayout, RefusesStateThatDoesNotFitItsParameter) {
  torch::optim::AdamWParamState state;
  const at::Tensor parameter = at::empty({4});
  state.exp_avg(at::empty({5})).exp_avg_sq(at::empty({4}));
  EXPECT_THROW(static_cast<void>(make_slot(parameter, "parameter", 0b11, fields_, &state)), ConfigError);
  state.exp_avg(at::empty({4}, at::kDouble));
  EXPECT_THROW(static_cast<void>(make_slot(parameter, "parameter", 0b11, fields_, &state)), ConfigError);
  state.exp_avg(at::empty({4}));
  EXPECT_NO_THROW(static_cast<void>(make_slot(parameter, "parameter", 0b11, fields_, &state)));
  EXPECT_THROW(static_cast<void>(make_slot(parameter, "parameter", 0b111, fields_, &state)), ConfigError);
  EXPECT_THROW(static_cast<void>(make_slot(parameter.to_sparse(), "parameter", 0b11, fields_, nullptr)), ConfigError);
}

TEST_F(StateLayout, ChoosesBlocksWhoseRingTakesAQuarterOfTheBudgetAtMost) {
  EXPECT_EQ(default_sub_group_bytes(64 << 20, 4), 4U << 20);
  EXPECT_EQ(default_sub_group_bytes(offload::kUnlimitedBytes, 4), 8U << 20);
  EXPECT_EQ(default_sub_group_bytes(0, 4), 4096U);
}

TEST(StateFieldsOf, AnOptimizerAreThoseThatItsOptionsNeed) {
  const torch::optim::Adam adam{std::vector<at::Tensor>{}};
  const StateFields& of_adam = *find_state_fields(adam);
  EXPECT_EQ(of_adam.needed(torch::optim::AdamOptions()), 0b011U);
  EXPECT_EQ(of_adam.needed(torch::optim::AdamOptions().amsgrad(true)), 0b111U);
  EXPECT_NE(of_adam.make_zero_state(), nullptr);
  const torch::optim::SGD sgd(std::vector<at::Tensor>{}, torch::optim::SGDOptions(0.1));
  const StateFields& of_sgd = *find_state_fields(sgd);
  EXPECT_EQ(of_sgd.needed(torch::optim::SGDOptions(0.1)), 0U);
  EXPECT_EQ(of_sgd.needed(torch::optim::SGDOptions(0.1).momentum(0.9)), 1U);
  EXPECT_EQ(of_sgd.make_zero_state(), nullptr) << "momentum starts as a copy of the gradient, not as zeros";
}

TEST(StateFieldsOf, AnOptimizerHaveAPlaceEachInItsState) {
  const torch::optim::AdamW adamw{std::vector<at::Tensor>{}};
  const StateFields& fields = *find_state_fields(adamw);
  torch::optim::AdamWParamState state;
  for (std::size_t field = 0; field < fields.names().size(); ++field) {
    fields.tensor(state, field) = at::empty({static_cast<std::int64_t>(field) + 1});
  }
  EXPECT_EQ(state.exp_avg().numel(), 1);
  EXPECT_EQ(state.exp_avg_sq().numel(), 2);
  EXPECT_EQ(state.max_exp_avg_sq().numel(), 3);
}

}  // namespace
}  // namespace spillway::optimizer::state_layout_test
