// What wrap() and step() refuse, in one clear line, and what stays as it was.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/lbfgs.h>
#include <torch/optim/rmsprop.h>
#include <torch/optim/sgd.h>

#include <spillway/offload/error.hpp>

#include "optimizer/wrapped_fixture.hpp"
#include "support/errors.hpp"

namespace spillway::test::refusals_test {
namespace {

using ::testing::HasSubstr;

TEST_F(Wrapped, OptionsThatAskForMoreStateAreRefusedAndLeaveItUsable) {
  start(adamw());
  step_both(2);
  auto& options = static_cast<torch::optim::AdamWOptions&>(optimizer_->param_groups()[0].options());
  options.amsgrad(true);
  EXPECT_THAT(message_of<ConfigError>([&] { optimizer_->step(); }), HasSubstr("max_exp_avg_sq"));
  options.amsgrad(false);
  step_both(2);
  expect_equal();
}

TEST_F(Wrapped, MomentumThatIsTurnedOnLaterIsRefused) {
  weights_ = odd_parameters();
  auto config = streaming_config();
  config.state = StateDevice::kCpu;
  const auto optimizer = wrap(std::make_unique<torch::optim::SGD>(weights_[0], torch::optim::SGDOptions(0.1)), config);
  EXPECT_EQ(optimizer->placement().state_bytes, 0U);
  gradients_.give(weights_, 0);
  optimizer->step();
  static_cast<torch::optim::SGDOptions&>(optimizer->param_groups()[0].options()).momentum(0.9);
  EXPECT_THAT(message_of<ConfigError>([&] { optimizer->step(); }), HasSubstr("wrap again"));
}

TEST_F(Wrapped, OptionsThatAskForLessGoOnWithTheStateThatThereIs) {
  start(sgd_with_momentum());
  step_both(3);
  for (const double momentum : {0.0, 0.9}) {
    for (torch::optim::Optimizer* optimizer : {plain_.get(), static_cast<torch::optim::Optimizer*>(optimizer_.get())}) {
      static_cast<torch::optim::SGDOptions&>(optimizer->param_groups()[0].options()).nesterov(false).momentum(momentum);
    }
    step_both(2);
  }
  expect_equal();
}

TEST_F(Wrapped, ASparseGradientIsRefusedBeforeAnythingChanges) {
  start(adamw());
  gradients_.give(weights_, 0);
  gradients_.give(plain_weights_, 0);
  const TensorGroups before = clone(weights_);
  const at::Tensor dense = weights_[0][3].grad();
  weights_[1][1].mutable_grad() = weights_[1][1].grad().to_sparse();
  EXPECT_THAT(message_of<Error>([&] { optimizer_->step(); }), HasSubstr("parameter 1 of group 1 is sparse"));
  EXPECT_EQ(differences(before, weights_), "");
  step_both(2);
  expect_equal();
}

TEST(Wrap, NamesTheOptimizersWhoseStateItKnows) {
  const TensorGroups weights = odd_parameters();
  const auto refuses = [](std::unique_ptr<torch::optim::Optimizer> optimizer, const char* name) {
    OptimizerConfig config;
    config.state = StateDevice::kCpu;
    auto* released = optimizer.release();
    EXPECT_THAT(message_of<ConfigError>(
                    [&] { auto wrapped = wrap(std::unique_ptr<torch::optim::Optimizer>(released), config); }),
                ::testing::AllOf(HasSubstr(name), HasSubstr("Adam, AdamW, SGD, RMSprop, Adagrad, LARS")));
  };
  refuses(std::make_unique<torch::optim::LBFGS>(weights[0]), "LBFGS");
  class MyAdam : public torch::optim::Adam {
   public:
    using torch::optim::Adam::Adam;
  };
  refuses(std::make_unique<MyAdam>(weights[0]), "MyAdam");
}

TEST(Wrap, PassesAnyOptimizerThroughWhereTheStateStays) {
  const TensorGroups plain_weights = odd_parameters();
  const TensorGroups weights = odd_parameters();
  torch::optim::RMSprop plain(plain_weights[0]);
  OptimizerConfig config;
  config.state = StateDevice::kNone;
  const auto optimizer = wrap(std::make_unique<torch::optim::RMSprop>(weights[0]), config);
  const Gradients gradients(512);
  for (std::int64_t step = 0; step < 4; ++step) {
    gradients.give(plain_weights, step);
    gradients.give(weights, step);
    optimizer->param_groups()[0].options().set_lr(0.01 / static_cast<double>(step + 1));
    plain.param_groups()[0].options().set_lr(0.01 / static_cast<double>(step + 1));
    plain.step();
    optimizer->step();
  }
  EXPECT_EQ(differences(weights, plain_weights), "");
}

TEST(Wrap, RefusesWhatItCannotDoWithOneClearLine) {
  const TensorGroups weights = odd_parameters();
  const auto attempt = [&](const OptimizerConfig& config) { auto made = wrap(adamw().make(weights), config); };
  OptimizerConfig config;
  EXPECT_THAT(message_of<ConfigError>([&] { auto made = wrap(nullptr, config); }), HasSubstr("null"));
  EXPECT_THAT(message_of<ConfigError>([&] { attempt(config); }), HasSubstr("nvme_path"));
  config.nvme_path = "/no/such/folder";
  EXPECT_THAT(message_of<IoError>([&] { attempt(config); }), HasSubstr("/no/such/folder"));
  const TempDir folder("wrap");
  config.nvme_path = folder.path().string();
  config.buffer_count = 1;
  EXPECT_THAT(message_of<ConfigError>([&] { attempt(config); }), HasSubstr("buffer_count is 1"));
  config.buffer_count = 4;
  config.host_bytes = 8192;
  config.sub_group_numel = 1;
  EXPECT_THAT(message_of<BudgetExceeded>([&] { attempt(config); }), HasSubstr("optimizer state"));
  config.state = StateDevice::kCpu;
  EXPECT_THAT(message_of<BudgetExceeded>([&] { attempt(config); }), HasSubstr("optimizer state"));
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

TEST(Wrap, SharesTiersWithOtherClients) {
  const TempDir folder("wrap");
  offload::TiersOptions options;
  options.nvme_path = folder.path().string();
  options.host_bytes = 64 << 20;
  options.engine = offload::EngineChoice::kThreads;
  const auto tiers = std::make_shared<offload::Tiers>(options);
  OptimizerConfig config;
  config.tiers = tiers;
  config.sub_group_numel = 200;
  config.buffer_count = 2;
  config.host_bytes = 3 * 4096;
  const TensorGroups weights = odd_parameters();
  const auto optimizer = wrap(adamw().make(weights), config);
  EXPECT_EQ(optimizer->tiers(), tiers);
  EXPECT_GT(optimizer->placement().disk_bytes, 0U);
  EXPECT_LE(tiers->host().used_bytes(), config.host_bytes);
  EXPECT_EQ(tiers->disk().used_bytes(), optimizer->placement().disk_bytes);
}

}  // namespace
}  // namespace spillway::test::refusals_test
