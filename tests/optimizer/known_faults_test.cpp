// What went wrong in other implementations of offloaded optimizers, on one rank: each with kernels and without, its
// state on disk.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <sstream>
#include <vector>

#include <ATen/ops/ones.h>
#include <torch/optim/adamw.h>
#include <torch/serialize.h>

#include <spillway/offload/error.hpp>

#include "optimizer/training.hpp"
#include "support/errors.hpp"
#include "support/temp_dir.hpp"

namespace spillway::test::known_faults_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using torch::optim::AdamWOptions;
using torch::optim::OptimizerParamGroup;

class KnownFaults : public ::testing::TestWithParam<UpdateKernels> {
 protected:
  OptimizerConfig config(std::uint64_t sub_group_numel) const {
    OptimizerConfig config;
    config.kernels = GetParam();
    config.nvme_path = folder_.path().string();
    config.sub_group_numel = sub_group_numel;
    config.buffer_count = 2;
    config.tiers_options.engine = offload::EngineChoice::kThreads;
    config.tiers_options.log = [](const std::string&) {};
    return config;
  }
  // As the plain optimizer: its bits, or with kernels its numbers.
  void expect_same(const TensorGroups& got, const TensorGroups& plain) const {
    if (GetParam() == UpdateKernels::kLibTorch) {
      EXPECT_EQ(differences(got, plain), "");
      return;
    }
    for (std::size_t g = 0; g < got.size(); ++g) {
      for (std::size_t i = 0; i < got[g].size(); ++i) {
        EXPECT_TRUE(got[g][i].allclose(plain[g][i], 1e-5, 1e-6)) << g << '/' << i;
      }
    }
  }

  TempDir folder_{"faults"};
  Gradients gradients_{1 << 20};
};

INSTANTIATE_TEST_SUITE_P(Kernels, KnownFaults, ::testing::Values(UpdateKernels::kLibTorch, UpdateKernels::kFused));

// The powers of beta drifted from sub-group to sub-group of one step.
TEST_P(KnownFaults, OneSubGroupAndManyGiveTheSameBits) {
  std::vector<TensorGroups> ends;
  for (const std::uint64_t sub_group_numel : {std::uint64_t{1} << 30, std::uint64_t{60}}) {
    const TensorGroups weights = odd_parameters();
    const auto optimizer = wrap(adamw().make(weights), config(sub_group_numel));
    if (sub_group_numel == 60) {
      EXPECT_GE(optimizer->placement().sub_groups, 7U);
    } else {
      EXPECT_EQ(optimizer->placement().sub_groups, 1U);
    }
    for (std::int64_t step = 0; step < 25; ++step) {
      gradients_.give(weights, step);
      optimizer->step();
    }
    ends.push_back(weights);
  }
  EXPECT_EQ(differences(ends[0], ends[1]), "");
}

// A gradient's place in its sub-group was no multiple of the disk's sector, so that its read failed and nobody looked.
TEST_P(KnownFaults, AnMlpOfOddSizesIsTheSameOnDiskAndInMemory) {
  std::vector<TensorGroups> ends;
  for (const StateDevice device : {StateDevice::kCpu, StateDevice::kNvme}) {
    const TensorGroups weights = mlp_parameters();
    OptimizerConfig where = config(1 << 20);
    where.state = device;
    const auto optimizer = wrap(adamw().make(weights), where);
    for (std::int64_t step = 0; step < 4; ++step) {
      gradients_.give(weights, step);
      optimizer->step();
    }
    ends.push_back(weights);
  }
  EXPECT_EQ(differences(ends[0], ends[1]), "");
  EXPECT_NE(differences(ends[0], mlp_parameters()), "");
}

// "More elements than buffer size": a parameter larger than a sub-group is a sub-group of its own; what no budget holds
// is named when it is wrapped.
TEST_P(KnownFaults, AParameterLargerThanASubGroupIsTrainedOrNamed) {
  const TensorGroups plain_weights{{at::ones({30'001}).requires_grad_()}, {at::ones({5}).requires_grad_()}};
  const TensorGroups weights = clone(plain_weights);
  const auto plain = adamw().make(plain_weights);
  const auto optimizer = wrap(adamw().make(weights), config(100));
  for (std::int64_t step = 0; step < 3; ++step) {
    gradients_.give(plain_weights, step);
    gradients_.give(weights, step);
    plain->step();
    optimizer->step();
  }
  expect_same(weights, plain_weights);
  OptimizerConfig tight = config(100);
  tight.host_bytes = 64 << 10;
  EXPECT_THAT(message_of<BudgetExceeded>([&] { auto made = wrap(adamw().make(clone(weights)), tight); }),
              AllOf(HasSubstr("optimizer state"), HasSubstr("host")));
}

// One counter for all parameters gave those that had no gradient a wrong bias correction.
TEST_P(KnownFaults, AParameterWithoutAGradientInOddStepsKeepsItsOwnCount) {
  const TensorGroups plain_weights{{at::ones({37}).requires_grad_(), at::ones({41}).requires_grad_()}};
  const TensorGroups weights = clone(plain_weights);
  const auto make = [](const TensorGroups& of) { return std::make_unique<torch::optim::AdamW>(of[0]); };
  const auto plain = make(plain_weights);
  const auto optimizer = wrap(make(weights), config(10));
  for (std::int64_t step = 0; step < 9; ++step) {
    gradients_.give(plain_weights, step);
    gradients_.give(weights, step);
    plain->step();
    optimizer->step();
  }
  expect_same(weights, plain_weights);
  const auto& state = *optimizer->wrapped().state().at(weights[0][1].unsafeGetTensorImpl());
  EXPECT_EQ(static_cast<const torch::optim::AdamWParamState&>(state).step(), 5);
}

// Parameters that are not contiguous were left as they were, without a word.
TEST_P(KnownFaults, AParameterWithGapsIsUpdated) {
  const auto with_gaps = [] { return at::ones({16, 16}).slice(1, 0, 16, 3).requires_grad_(); };
  const TensorGroups plain_weights{{with_gaps()}};
  const TensorGroups weights{{with_gaps()}};
  ASSERT_FALSE(weights[0][0].is_non_overlapping_and_dense());
  const auto make = [](const TensorGroups& of) { return std::make_unique<torch::optim::AdamW>(of[0]); };
  const auto plain = make(plain_weights);
  const auto optimizer = wrap(make(weights), config(10));
  for (const TensorGroups* of : {&plain_weights, &weights}) {
    (*of)[0][0].mutable_grad() = at::ones({16, 6});
  }
  for (int step = 0; step < 3; ++step) {
    plain->step();
    optimizer->step();
  }
  EXPECT_EQ(differences(weights, plain_weights), "");
  EXPECT_LT(weights[0][0][3][3].item<float>(), 1.0F);
}

// Groups were merged and put in another order.
TEST_P(KnownFaults, ThreeGroupsWithInterleavedParametersComeBackAsTheyWere) {
  const auto make = [](const TensorGroups& of) {
    std::vector<OptimizerParamGroup> groups;
    for (std::size_t g = 0; g < 3; ++g) {
      const double k = static_cast<double>(g);
      groups.emplace_back(
          Tensors{of[0][g], of[0][g + 3]},
          std::make_unique<AdamWOptions>(
              AdamWOptions(1e-3 * (k + 1)).weight_decay(0.1 * k).betas({0.5 + 0.1 * k, 0.9 + 0.03 * k})));
    }
    return std::make_unique<torch::optim::AdamW>(groups);
  };
  TensorGroups plain_weights(1);
  for (std::int64_t i = 0; i < 6; ++i) {
    plain_weights[0].push_back(at::ones({31 + i}).requires_grad_());
  }
  const TensorGroups weights = clone(plain_weights);
  const auto plain = make(plain_weights);
  auto optimizer = wrap(make(weights), config(70));
  for (std::int64_t step = 10; step < 16; ++step) {
    if (step == 13) {
      std::stringstream archive;
      torch::save(*static_cast<torch::optim::Optimizer*>(optimizer.get()), archive);
      optimizer = wrap(make(weights), config(50));
      torch::load(*static_cast<torch::optim::Optimizer*>(optimizer.get()), archive);
    }
    gradients_.give(plain_weights, step);
    gradients_.give(weights, step);
    plain->step();
    optimizer->step();
  }
  expect_same(weights, plain_weights);
}

// Frozen parameters took up state, or crashed.
TEST_P(KnownFaults, FrozenParametersTakeNoStateAndCanBeUnfrozen) {
  TensorGroups weights(1);
  for (std::int64_t i = 0; i < 20; ++i) {
    weights[0].push_back(at::ones({100}).requires_grad_(i % 10 == 0));
  }
  const auto optimizer = wrap(std::make_unique<torch::optim::AdamW>(weights[0]), config(64));
  EXPECT_EQ(optimizer->placement().state_bytes, 2U * 100 * 8);
  gradients_.give(weights, 10);
  optimizer->step();
  weights[0][5].requires_grad_();
  gradients_.give(weights, 11);
  optimizer->step();
  EXPECT_EQ(optimizer->placement().state_bytes, 3U * 100 * 8);
  EXPECT_FALSE(bit_equal(weights[0][5], at::ones({100})));
  EXPECT_TRUE(bit_equal(weights[0][6], at::ones({100})));
}

}  // namespace
}  // namespace spillway::test::known_faults_test
