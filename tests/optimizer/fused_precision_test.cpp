// Masters, remainders and coded state inside wrap().
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <sstream>
#include <vector>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/add.h>
#include <ATen/ops/ones.h>
#include <torch/optim/adamw.h>
#include <torch/optim/sgd.h>
#include <torch/serialize.h>

#include <spillway/offload/error.hpp>
#include <spillway/optimizer/state_codec.hpp>

#include "optimizer/fused_model.hpp"
#include "support/errors.hpp"
#include "support/temp_dir.hpp"

namespace spillway::test::fused_precision_test {
namespace {

using ::testing::HasSubstr;

struct Form {
  StateFormat state = StateFormat::kFloat32;
  MasterFormat masters = MasterFormat::kNone;
};

std::vector<Form> forms_for(const Recipe& recipe) {
  std::vector<Form> forms;
  for (const auto masters : {MasterFormat::kNone, MasterFormat::kFloat32, MasterFormat::kRemainder}) {
    forms.push_back({StateFormat::kFloat32, masters});
    forms.push_back({StateFormat::kBFloat16, masters});
    if (recipe.name.substr(0, 4) == "Adam" && recipe.name != "Adagrad") {
      forms.push_back({StateFormat::kBlockwise8, masters});
    }
  }
  return forms;
}

std::string name_of(const Form& form) {
  return "state " + std::to_string(static_cast<int>(form.state)) + ", masters " +
         std::to_string(static_cast<int>(form.masters));
}

OptimizerConfig config_of(const Form& form, const TempDir& folder, std::uint64_t sub_group_numel = 500) {
  OptimizerConfig config;
  config.kernels = UpdateKernels::kFused;
  config.state_format = form.state;
  config.masters = form.masters;
  config.nvme_path = folder.path().string();
  config.sub_group_numel = sub_group_numel;
  config.buffer_count = 2;
  config.tiers_options.engine = offload::EngineChoice::kThreads;
  config.tiers_options.log = [](const std::string&) {};
  return config;
}

RandomModel narrow_model(Random& random) {
  return random_model(random, {.types = {at::kBFloat16, at::kHalf}, .tied = false});
}

TensorGroups widened(const TensorGroups& groups) {
  TensorGroups wide;
  for (const Tensors& group : groups) {
    Tensors& list = wide.emplace_back();
    for (const at::Tensor& tensor : group) {
      list.push_back(tensor.defined() ? tensor.detach().to(at::kFloat, false, true) : tensor);
      if (tensor.defined() && tensor.requires_grad()) {
        list.back().requires_grad_();
      }
    }
  }
  return wide;
}

// What a float32 weight is published as.
at::Tensor published(const at::Tensor& wide, at::ScalarType type, MasterFormat masters) {
  if (type != at::kBFloat16 || masters != MasterFormat::kRemainder) {
    return wide.detach().to(type);
  }
  at::Tensor result = at::empty_like(wide.detach(), at::TensorOptions(type));
  const auto* from = reinterpret_cast<const std::uint32_t*>(wide.const_data_ptr());
  auto* to = static_cast<std::uint16_t*>(result.mutable_data_ptr());
  std::transform(from, from + wide.numel(), to,
                 [](std::uint32_t bits) { return static_cast<std::uint16_t>((bits + 0x8000) >> 16); });
  return result;
}

void expect_published(const TensorGroups& narrow, const TensorGroups& wide, const Form& form) {
  for (std::size_t g = 0; g < narrow.size(); ++g) {
    for (std::size_t i = 0; i < narrow[g].size(); ++i) {
      ASSERT_TRUE(bit_equal(narrow[g][i], published(wide[g][i], narrow[g][i].scalar_type(), form.masters)))
          << name_of(form) << ", parameter " << g << '/' << i;
    }
  }
}

// Weights with a master take the way of float32 weights, from the first step on, also where they are changed by hand.
TEST(Masters, ArePublishedBesideTheFloat32WeightsOfTheSameTraining) {
  const TempDir folder("precision");
  for_random_seeds(25, [&](Random& random) {
    const RandomModel model = narrow_model(random);
    for (const Form& form : forms_for(model.recipe)) {
      if (form.masters == MasterFormat::kNone) {
        continue;
      }
      const TensorGroups narrow = clone(model.weights);
      const TensorGroups wide = widened(model.weights);
      const auto optimizer = wrap(model.recipe.make(narrow), config_of(form, folder, random.between(1, 3000)));
      const auto reference =
          wrap(model.recipe.make(wide), config_of({form.state, MasterFormat::kNone}, folder, random.between(1, 3000)));
      for (int step = 0; step < 4; ++step) {
        if (step == 2 && form.masters == MasterFormat::kFloat32) {
          const at::NoGradGuard no_grad;
          narrow[0][0].add_(1.0);                                                  // Bumps the version.
          narrow[0].back().set_data(narrow[0].back().detach().clone().mul_(2.0));  // Does not.
          wide[0][0].copy_(narrow[0][0]);
          wide[0].back().copy_(narrow[0].back());
        }
        const TensorGroups gradients = random_gradients(model.weights, random);
        give(narrow, gradients);
        give(wide, widened(gradients));
        optimizer->step();
        reference->step();
        expect_published(narrow, wide, form);
      }
    }
  });
}

// The control: without masters small steps are lost.
TEST(Masters, AreWhatKeepsSmallSteps) {
  const TempDir folder("precision");
  for (const auto masters : {MasterFormat::kNone, MasterFormat::kFloat32, MasterFormat::kRemainder}) {
    const at::Tensor weight = at::ones({300}, at::kBFloat16).requires_grad_();
    const auto optimizer = wrap(std::make_unique<torch::optim::SGD>(Tensors{weight}, torch::optim::SGDOptions(1e-4)),
                                config_of({StateFormat::kFloat32, masters}, folder));
    weight.mutable_grad() = at::ones({300}, at::kBFloat16);
    for (int step = 0; step < 1000; ++step) {
      optimizer->step();
    }
    EXPECT_NEAR(weight[7].item<float>(), masters == MasterFormat::kNone ? 1.0F : 0.9F, 0.004F);
  }
}

TEST(Precision, PlacementChangesNoBitInAnyForm) {
  const TempDir folder("precision");
  for_random_seeds(15, [&](Random& random) {
    RandomModelLimits limits;
    limits.types = {at::kBFloat16, at::kFloat, at::kHalf, at::kDouble};
    const RandomModel model = random_model(random, limits);
    for (const Form& form : forms_for(model.recipe)) {
      const TensorGroups first = clone_tied(model.weights);
      const TensorGroups second = clone_tied(model.weights);
      OptimizerConfig resident = config_of(form, folder, 0);
      resident.state = StateDevice::kCpu;
      const auto on_host = wrap(model.recipe.make(first), resident);
      const auto on_disk = wrap(model.recipe.make(second), config_of(form, folder, random.between(1, 3000)));
      for (int step = 0; step < 3; ++step) {
        const TensorGroups gradients = random_gradients(model.weights, random);
        give(first, gradients);
        give(second, gradients);
        on_host->step();
        on_disk->step();
        ASSERT_EQ(differences(first, second), "") << model.recipe.name << ", " << name_of(form) << ", step " << step;
      }
    }
  });
}

class PrecisionOfAModel : public ::testing::Test {
 protected:
  void make(const Form& form, const Recipe& recipe = adamw()) {
    weights_ = {{at::ones({3001}, at::kBFloat16), at::ones({2999}, at::kBFloat16)},
                {at::ones({7, 11}, at::kBFloat16), at::ones({3000}, at::kBFloat16), at::ones({2998}, at::kBFloat16)}};
    for (const Tensors& group : weights_) {
      for (const at::Tensor& weight : group) {
        weight.requires_grad_();
      }
    }
    optimizer_ = wrap(recipe.make(weights_), config_of(form, folder_));
    ASSERT_GT(optimizer_->placement().disk_bytes, 0U);
  }
  void train(int steps) {
    for (; steps > 0; --steps, ++step_) {
      for (const Tensors& group : weights_) {
        for (const at::Tensor& weight : group) {
          weight.mutable_grad() =
              gradients_.make(weight.detach().to(at::kFloat), step_, weight.numel()).to(at::kBFloat16);
        }
      }
      optimizer_->step();
    }
  }
  StepBytes moved() const {
    const offload::Stats& stats = optimizer_->tiers()->stats();
    return {stats.read_bytes, stats.written_bytes};
  }

  TempDir folder_{"precision"};
  Gradients gradients_{4096};
  TensorGroups weights_;
  std::unique_ptr<Optimizer> optimizer_;
  std::int64_t step_ = 0;
};

TEST_F(PrecisionOfAModel, CutsWhatIsStoredAndMovedAsPredicted) {
  std::uint64_t numel = 0;
  std::uint64_t scales = 0;
  for (const std::uint64_t of_one : {3001, 2999, 77, 3000, 2998}) {
    numel += of_one;
    scales += optimizer::dynamic_blocks(of_one);
  }
  const std::uint64_t padding = 5 * 2 * 64;  // Scales begin on a bound of 64 bytes.
  for (const Form& form : forms_for(adamw())) {
    SCOPED_TRACE(name_of(form));
    make(form);
    const std::uint64_t state = form.state == StateFormat::kFloat32    ? 8 * numel
                                : form.state == StateFormat::kBFloat16 ? 4 * numel
                                                                       : 2 * numel + 8 * scales;
    const std::uint64_t masters = form.masters == MasterFormat::kNone      ? 0
                                  : form.masters == MasterFormat::kFloat32 ? 4 * numel
                                                                           : 2 * numel;
    EXPECT_GE(optimizer_->placement().state_bytes, state + masters);
    EXPECT_LE(optimizer_->placement().state_bytes,
              state + masters + (form.state == StateFormat::kBlockwise8 ? padding : 0));
    EXPECT_EQ(optimizer_->next_step_bytes().read, 0U) << "masters start as the parameters' values, not from the disk";
    for (int step = 0; step < 3; ++step) {
      const StepBytes predicted = optimizer_->next_step_bytes();
      const StepBytes before = moved();
      train(1);
      optimizer_->flush();
      EXPECT_EQ(moved().read - before.read, predicted.read);
      EXPECT_EQ(moved().written - before.written, predicted.written);
    }
    EXPECT_EQ(optimizer_->next_step_bytes(), optimizer_->steady_step_bytes());
  }
}

TEST_F(PrecisionOfAModel, ComesBackFromAnArchiveBitForBit) {
  for (const Form& form : forms_for(adamw())) {
    for (const bool weights_first : {true, false}) {
      SCOPED_TRACE(name_of(form));
      make(form);
      step_ = 0;
      train(3);
      std::stringstream archive;
      torch::save(*static_cast<torch::optim::Optimizer*>(optimizer_.get()), archive);
      const TensorGroups saved = clone(weights_);
      train(3);
      const TensorGroups expected = clone(weights_);

      // Into a model that went another way.
      make(form);
      train(1);
      const auto load_weights = [&] {
        const at::NoGradGuard no_grad;
        for (std::size_t g = 0; g < weights_.size(); ++g) {
          for (std::size_t i = 0; i < weights_[g].size(); ++i) {
            weights_[g][i].copy_(saved[g][i]);
          }
        }
      };
      if (weights_first) {
        load_weights();
      }
      torch::load(*static_cast<torch::optim::Optimizer*>(optimizer_.get()), archive);
      if (!weights_first) {
        load_weights();
      }
      step_ = 3;
      train(3);
      EXPECT_EQ(differences(weights_, expected), "");
    }
  }
}

TEST_F(PrecisionOfAModel, IsFloat32InAnArchiveThatAPlainOptimizerReads) {
  for (const Form& form : forms_for(adamw())) {
    SCOPED_TRACE(name_of(form));
    make(form);
    train(2);
    std::stringstream archive;
    torch::save(*static_cast<torch::optim::Optimizer*>(optimizer_.get()), archive);
    const TensorGroups wide = widened(weights_);
    const auto plain = adamw().make(wide);
    torch::load(*plain, archive);
    const auto& state =
        static_cast<torch::optim::AdamWParamState&>(*plain->state().at(wide[1][0].unsafeGetTensorImpl()));
    EXPECT_EQ(state.step(), 2);
    EXPECT_EQ(state.exp_avg().sizes(), at::IntArrayRef({7, 11}));
    EXPECT_EQ(state.exp_avg().scalar_type(), at::kFloat);
    EXPECT_EQ(state.exp_avg_sq().scalar_type(), at::kFloat);
    wide[1][0].mutable_grad() = at::ones({7, 11});
    plain->step();
  }
}

TEST_F(PrecisionOfAModel, StateOfEightBitsTrainsCloseToThatOfFloat32) {
  make({});
  train(20);
  const TensorGroups expected = clone(weights_);
  make({StateFormat::kBlockwise8, MasterFormat::kFloat32});
  step_ = 0;
  train(20);
  const at::Tensor difference = (weights_[0][0] - expected[0][0]).detach().to(at::kFloat).abs();
  const at::Tensor way = (expected[0][0].detach().to(at::kFloat) - 1.0F).abs();
  EXPECT_LT(difference.mean().item<float>(), 0.3F * way.mean().item<float>());
  EXPECT_NE(differences(weights_, expected), "");
}

TEST_F(PrecisionOfAModel, IsRefusedWhereItCannotBeHad) {
  const auto refused = [&](OptimizerConfig config, const Recipe& recipe, const char* reason) {
    EXPECT_THAT(message_of<ConfigError>([&] { auto made = wrap(recipe.make(weights_), config); }), HasSubstr(reason));
  };
  make({});
  OptimizerConfig config = config_of({StateFormat::kBFloat16, MasterFormat::kNone}, folder_);
  config.kernels = UpdateKernels::kLibTorch;
  refused(config, adamw(), "UpdateKernels::kFused");
  refused(config_of({StateFormat::kFloat32, MasterFormat::kRemainder}, folder_), one_of_each_kind()[3], "kernels'");
  refused(config_of({StateFormat::kBlockwise8, MasterFormat::kNone}, folder_), sgd_with_momentum(), "8 bits");
  weights_[1][0] = at::ones({8, 8}, at::kBFloat16).slice(1, 0, 8, 2).requires_grad_();
  refused(config_of({StateFormat::kFloat32, MasterFormat::kFloat32}, folder_), adamw(), "gaps between its elements");
}

TEST_F(PrecisionOfAModel, ASparseGradientOfAWeightWithAMasterIsRefused) {
  const at::Tensor weight = at::ones({5, 4}, at::kBFloat16).requires_grad_();
  const auto optimizer = wrap(std::make_unique<torch::optim::SGD>(Tensors{weight}, torch::optim::SGDOptions(0.5)),
                              config_of({StateFormat::kFloat32, MasterFormat::kFloat32}, folder_));
  weight.mutable_grad() = at::ones({5, 4}, at::kBFloat16).to_sparse();
  EXPECT_THAT(message_of<Error>([&] { optimizer->step(); }), HasSubstr("sparse"));
  EXPECT_EQ(weight[0][0].item<float>(), 1.0F);
}

}  // namespace
}  // namespace spillway::test::fused_precision_test
