// Updates by fused kernels inside wrap(): the same bits wherever the state lives, and LibTorch's formula to 4 ulp.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <sstream>
#include <vector>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/sum.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/rmsprop.h>
#include <torch/optim/sgd.h>
#include <torch/serialize.h>

#include <spillway/offload/error.hpp>

#include "optimizer/fused_model.hpp"
#include "optimizer/wrapped_fixture.hpp"
#include "support/errors.hpp"

namespace spillway::test::fused_path_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using torch::optim::OptimizerParamGroup;

struct Trainee {
  std::string name;
  TensorGroups weights;
  std::unique_ptr<Optimizer> optimizer;
};

// The state in host memory, on disk, or `percent` of it in host memory and the rest on disk.
Trainee make_trainee(unsigned percent, const RandomModel& model, const TempDir& folder, std::uint64_t sub_group_numel,
                     UpdateKernels kernels = UpdateKernels::kFused) {
  Trainee trainee{std::to_string(percent) + " % in memory, sub-groups of " + std::to_string(sub_group_numel),
                  clone_tied(model.weights), nullptr};
  OptimizerConfig config;
  config.state = percent == 100 ? StateDevice::kCpu : StateDevice::kNvme;
  config.kernels = kernels;
  config.nvme_path = folder.path().string();
  config.sub_group_numel = sub_group_numel;
  config.buffer_count = 2;
  config.tiers_options.engine = offload::EngineChoice::kThreads;
  config.tiers_options.log = [](const std::string&) {};
  if (percent > 0 && percent < 100) {
    const StatePlacement all = wrap(model.recipe.make(clone_tied(model.weights)), config)->placement();
    if (all.disk_bytes > 0) {
      config.host_bytes =
          all.ring_bytes + all.resident_bytes + std::max(all.disk_bytes * percent / 100, offload::kPageBytes);
    }
  }
  trainee.optimizer = wrap(model.recipe.make(trainee.weights), config);
  return trainee;
}

std::vector<Trainee> trainees_of(const RandomModel& model, Random& random, const TempDir& folder) {
  std::vector<Trainee> trainees;
  for (const unsigned percent : {100U, 0U, 60U}) {
    trainees.push_back(make_trainee(percent, model, folder, random.chance(1, 4) ? 0 : random.between(1, 5000)));
  }
  return trainees;
}

void change_alike(std::vector<Trainee>& trainees, Random& random) {
  change_options(*trainees.front().optimizer, random);
  for (Trainee& trainee : trainees) {
    for (std::size_t g = 0; g < trainee.weights.size(); ++g) {
      trainee.optimizer->param_groups()[g].set_options(trainees.front().optimizer->param_groups()[g].options().clone());
    }
  }
}

TEST(FusedPath, GivesTheSameBitsWhereverTheStateLivesAndLibTorchsFormulaToFourUlp) {
  const TempDir folder("fused");
  double worst = 0.0;
  for_random_seeds(60, [&](Random& random) {
    const RandomModel model = random_model(random);
    std::vector<Trainee> trainees = trainees_of(model, random, folder);
    SCOPED_TRACE(model.recipe.name);
    for (int step = 0; step < 5; ++step) {
      if (random.chance(1, 3)) {
        change_alike(trainees, random);
      }
      const TensorGroups gradients = random_gradients(model.weights, random);
      const TensorGroups before = clone_tied(trainees.front().weights);
      const TensorGroups exact =
          exact_step(*trainees.front().optimizer, model.recipe, trainees.front().weights, gradients);
      for (Trainee& trainee : trainees) {
        give(trainee.weights, gradients);
        trainee.optimizer->step();
        ASSERT_EQ(differences(trainee.weights, trainees.front().weights), "") << trainee.name << ", step " << step;
      }
      const double error = worst_ulps(before, trainees.front().weights, exact);
      ASSERT_LE(error, kUlpBound) << "step " << step;
      worst = std::max(worst, error);
    }
    if (model.weights.size() > 1 && random.chance(1, 4)) {
      ASSERT_NE(differences(trainees.front().weights, model.weights), "") << "the steps changed nothing";
    }
  });
  ::testing::Test::RecordProperty("worst_ulp", std::to_string(worst));
}

// The control: the same measure finds LibTorch's own float32 arithmetic outside of the bound.
TEST(FusedPath, LibTorchsOwnStepIsNotWithinFourUlp) {
  const TempDir folder("fused");
  double worst = 0.0;
  for_random_seeds(100, [&](Random& random) {
    const RandomModel model = random_model(random, {{at::kFloat}, false});
    const Trainee trainee = make_trainee(100, model, folder, 0, UpdateKernels::kLibTorch);
    for (int step = 0; step < 3; ++step) {
      const TensorGroups gradients = random_gradients(model.weights, random);
      const TensorGroups before = clone_tied(trainee.weights);
      const TensorGroups exact = exact_step(*trainee.optimizer, model.recipe, trainee.weights, gradients);
      give(trainee.weights, gradients);
      trainee.optimizer->step();
      worst = std::max(worst, worst_ulps(before, trainee.weights, exact));
    }
  });
  EXPECT_GT(worst, 4.0);
}

class Fused : public Wrapped {
 protected:
  OptimizerConfig fused_config() const {
    OptimizerConfig config = streaming_config();
    config.kernels = UpdateKernels::kFused;
    config.tiers_options.log = [this](const std::string& line) { log_ += line + "\n"; };
    return config;
  }
  void start_fused(const Recipe& recipe) {
    start(recipe);
    optimizer_ = wrap(recipe.make(weights_), fused_config());
  }
  void expect_close() const {
    for (std::size_t g = 0; g < weights_.size(); ++g) {
      for (std::size_t i = 0; i < weights_[g].size(); ++i) {
        EXPECT_TRUE(weights_[g][i].allclose(plain_weights_[g][i], 1e-5, 1e-6)) << g << '/' << i;
      }
    }
  }
  mutable std::string log_;
};

TEST_F(Fused, SaysWhoUpdatesWhat) {
  start(adamw());
  weights_[0].push_back(at::ones({3}, at::kDouble).requires_grad_());
  optimizer_ = wrap(adamw().make(weights_), fused_config());
  EXPECT_EQ(optimizer_->placement().fused_parameters, 8U);
  EXPECT_EQ(optimizer_->placement().other_parameters, 2U);
  EXPECT_THAT(log_, AllOf(HasSubstr("update 8 parameters"), HasSubstr("LibTorch's AdamW the other 2"),
                          HasSubstr("parameter 3 of group 0, which has no elements")));
}

TEST_F(Fused, AnOptimizerWithoutKernelsIsSteppedByLibTorchBitForBit) {
  start_fused(one_of_each_kind()[3]);
  EXPECT_THAT(log_, HasSubstr("no fused kernels for torch::optim::RMSprop"));
  EXPECT_EQ(optimizer_->placement().fused_parameters, 0U);
  step_both(12);
  expect_equal();
}

TEST_F(Fused, ALoopWithSchedulesGroupsAndFrozenParametersTrainsAsThePlainOne) {
  for (const Recipe& recipe : one_of_each_kind()) {
    SCOPED_TRACE(recipe.name);
    start_fused(recipe);
    step_both(4);
    for (TensorGroups* weights : {&plain_weights_, &weights_}) {
      (*weights)[1].back().requires_grad_();
      (*weights)[1].back().mutable_grad() = at::ones({7, 7});
    }
    for (torch::optim::Optimizer* optimizer : {plain_.get(), static_cast<torch::optim::Optimizer*>(optimizer_.get())}) {
      optimizer->param_groups()[0].options().set_lr(0.004);
    }
    step_both(12);
    expect_close();
    step_ = 0;
  }
}

TEST_F(Fused, ATiedParameterIsUpdatedOnceForEachUse) {
  for (const Recipe& recipe : {adamw(), sgd_with_momentum(), one_of_each_kind().back()}) {
    SCOPED_TRACE(recipe.name);
    plain_weights_ = odd_parameters();
    weights_ = odd_parameters();
    for (TensorGroups* weights : {&plain_weights_, &weights_}) {
      (*weights)[0].push_back((*weights)[0][0]);
      (*weights)[1].push_back((*weights)[0][0]);
    }
    plain_ = recipe.make(plain_weights_);
    optimizer_ = wrap(recipe.make(weights_), fused_config());
    step_both(3);
    expect_close();
    step_ = 0;
  }
}

TEST_F(Fused, ItsArchiveGoesToAPlainOptimizerAndBack) {
  for (const Recipe& recipe : one_of_each_kind()) {
    SCOPED_TRACE(recipe.name);
    start_fused(recipe);
    step_both(5);
    std::stringstream archive;
    torch::save(*static_cast<torch::optim::Optimizer*>(optimizer_.get()), archive);
    plain_weights_ = clone(weights_);
    plain_ = recipe.make(plain_weights_);
    torch::load(*plain_, archive);
    step_both(3);
    expect_close();

    std::stringstream back;
    torch::save(*plain_, back);
    optimizer_ = wrap(recipe.make(weights_), fused_config());
    torch::load(*static_cast<torch::optim::Optimizer*>(optimizer_.get()), back);
    step_both(3);
    expect_close();
    step_ = 0;
  }
}

TEST_F(Fused, TheStateOfPlainStepsIsTakenOver) {
  start(adamw());
  auto unwrapped = adamw().make(weights_);
  gradients_.give(weights_, 10);
  gradients_.give(plain_weights_, 10);
  unwrapped->step();
  plain_->step();
  optimizer_ = wrap(std::move(unwrapped), fused_config());
  step_both(4);
  expect_close();
}

TEST_F(Fused, AnUpdateCountsAsAChangeInPlaceAsLibTorchsDoes) {
  start_fused(adamw());
  for (const auto& [optimizer, weights] :
       {std::pair{plain_.get(), &plain_weights_},
        std::pair{static_cast<torch::optim::Optimizer*>(optimizer_.get()), &weights_}}) {
    const at::Tensor weight = (*weights)[0][0];
    const at::Tensor loss = (weight * weight).sum();
    loss.backward({}, /*retain_graph=*/true);
    optimizer->step();
    EXPECT_THAT(message_of<c10::Error>([&] { loss.backward(); }), HasSubstr("inplace operation"));
  }
}

// Two parameters that are views of one memory are no two updates that may trainee at once.
TEST_F(Fused, ParametersThatShareMemoryAreUpdatedOneAfterTheOther) {
  constexpr std::int64_t kNumel = 300'000;
  std::vector<at::Tensor> ends;
  for (const std::uint64_t sub_group_numel : {std::uint64_t{1}, std::uint64_t{1} << 22}) {
    at::Tensor memory = at::ones({kNumel});
    const auto part = [&](std::int64_t begin) {
      at::Tensor view = at::from_blob(memory.data_ptr<float>() + begin, {kNumel - 1000}, at::TensorOptions(at::kFloat));
      view.mutable_grad() = at::ones({kNumel - 1000});
      return view.requires_grad_();
    };
    OptimizerConfig config = fused_config();
    config.sub_group_numel = sub_group_numel;
    const auto optimizer = wrap(adamw().make({{part(1000), part(0)}}), config);
    optimizer->step();
    optimizer->step();
    ends.push_back(memory);
  }
  EXPECT_TRUE(bit_equal(ends[0], ends[1]));
  EXPECT_NE(ends[0][0].item<float>(), ends[0][5000].item<float>());
}

TEST_F(Fused, AGradientOrParameterThatIsNotWhatItWasIsRefusedBeforeAnythingChanges) {
  start_fused(adamw());
  step_both(2);
  const at::Tensor last = weights_[1][3];
  const auto refused = [&](const char* reason) {
    const TensorGroups before = clone(weights_);
    EXPECT_THAT(message_of<Error>([&] { optimizer_->step(); }), AllOf(HasSubstr(reason), HasSubstr("parameter 3")));
    EXPECT_EQ(differences(before, weights_), "");
  };
  gradients_.give(weights_, step_);
  last.mutable_grad() = at::ones({3});
  refused("Float [3] on cpu");
  last.mutable_grad() = at::ones(last.sizes(), at::kBFloat16);
  refused("BFloat16 [2, 3, 4, 5]");
  last.mutable_grad() = at::Tensor();
  const at::Tensor kept = last.detach().clone();
  last.set_data(kept.contiguous());
  last.mutable_grad() = at::ones(last.sizes());
  refused("another layout");
  last.mutable_grad() = at::Tensor();
  last.set_data(kept.to(at::kDouble));
  last.mutable_grad() = at::ones(last.sizes(), at::kDouble);
  refused("type since wrap");
  last.mutable_grad() = at::Tensor();
  last.set_data(kept);
  step_both(2);
  expect_close();
}

TEST_F(Fused, NeedsTheStateInBlocks) {
  weights_ = odd_parameters();
  OptimizerConfig config = fused_config();
  config.state = StateDevice::kNone;
  EXPECT_THAT(message_of<ConfigError>([&] { auto made = wrap(adamw().make(weights_), config); }),
              HasSubstr("take kCpu"));
}

}  // namespace
}  // namespace spillway::test::fused_path_test
