#include <spillway/app/training/optimizer_factory.hpp>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/full.h>
#include <ATen/ops/linspace.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/optim/adagrad.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/rmsprop.h>
#include <torch/optim/sgd.h>

#include <spillway/app/config/load_config.hpp>
#include <spillway/offload/error.hpp>
#include <spillway/optimizer/lars.hpp>
#include <support/temp_dir.hpp>

#include "support/errors.hpp"

namespace spillway::app::optimizer_factory_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr std::int64_t kNumel = 12000;
constexpr std::uint64_t kPage = 4096;

std::vector<at::Tensor> weights(int count = 4) {
  std::vector<at::Tensor> parameters;
  for (int i = 0; i < count; ++i) {
    parameters.push_back(at::linspace(-1.0, 1.0 + i, kNumel).requires_grad_());
  }
  return parameters;
}

std::shared_ptr<offload::Tiers> memory() {
  offload::TiersOptions options;
  options.log = [](const std::string&) {};
  return std::make_shared<offload::Tiers>(std::move(options));
}

Config config_of(const std::string& optimizer, const std::string& params = "{}") {
  const std::string text = R"({"optimizer": {"type": ")" + optimizer + R"(", "params": )" + params + "}}";
  return load_config({.text = text}).config;
}

/// The weights after three steps with gradients that change their signs.
at::Tensor after_three_steps(
    torch::optim::Optimizer& optimizer, const std::vector<at::Tensor>& parameters,
    const std::function<void(std::uint64_t)>& before_step = [](std::uint64_t) {}) {
  for (std::uint64_t step = 0; step < 3; ++step) {
    for (const at::Tensor& parameter : parameters) {
      parameter.mutable_grad() = parameter.detach() * (step == 1 ? -0.5 : 0.25);
    }
    before_step(step);
    optimizer.step();
  }
  return parameters.front().detach().clone();
}

template <typename Plain, typename Options>
at::Tensor plain_weights(const Options& options) {
  const std::vector<at::Tensor> parameters = weights();
  Plain optimizer(parameters, options);
  return after_three_steps(optimizer, parameters);
}

at::Tensor made_weights(const Config& config) {
  const std::vector<at::Tensor> parameters = weights();
  const auto optimizer = make_optimizer(config, parameters, memory());
  return after_three_steps(*optimizer, parameters);
}

struct Case {
  std::string name;
  Config config;
  at::Tensor wanted;
};

optimizer::LarsOptions lars_options(double lr, double momentum, bool nesterov) {
  optimizer::LarsOptions options(lr);
  options.momentum = momentum;
  options.nesterov = nesterov;
  return options;
}

std::vector<Case> cases() {
  using namespace torch::optim;
  return {
      {"Adam with decoupled decay", config_of("Adam", R"({"lr": 0.1, "betas": [0.8, 0.99], "weight_decay": 0.2})"),
       plain_weights<AdamW>(AdamWOptions(0.1).betas({0.8, 0.99}).weight_decay(0.2))},
      {"Adam", config_of("Adam", R"({"lr": 0.1, "adam_w_mode": false, "weight_decay": 0.2, "amsgrad": true})"),
       plain_weights<Adam>(AdamOptions(0.1).weight_decay(0.2).amsgrad(true))},
      {"AdamW by its defaults", config_of("AdamW"), plain_weights<AdamW>(AdamWOptions(1e-3).weight_decay(0.0))},
      {"SGD", config_of("SGD", R"({"lr": 0.1, "momentum": 0.9, "nesterov": true, "weight_decay": 0.2})"),
       plain_weights<SGD>(SGDOptions(0.1).momentum(0.9).nesterov(true).weight_decay(0.2))},
      {"Adagrad", config_of("Adagrad", R"({"lr_decay": 0.3, "initial_accumulator_value": 0.5, "weight_decay": 0.2})"),
       plain_weights<Adagrad>(AdagradOptions().lr_decay(0.3).initial_accumulator_value(0.5).weight_decay(0.2))},
      {"Adagrad by its defaults", config_of("Adagrad"), plain_weights<Adagrad>(AdagradOptions())},
      {"RMSprop", config_of("RMSprop", R"({"alpha": 0.8, "eps": 1e-3, "momentum": 0.9, "centered": true})"),
       plain_weights<RMSprop>(RMSpropOptions().alpha(0.8).eps(1e-3).momentum(0.9).centered(true))},
      {"RMSprop by its defaults", config_of("RMSprop"), plain_weights<RMSprop>(RMSpropOptions())},
      {"LARS", config_of("LARS", R"({"lr": 2.0, "momentum": 0.8, "nesterov": true})"),
       plain_weights<optimizer::Lars>(lars_options(2.0, 0.8, true))},
  };
}

TEST(OptimizerFactory, KnowsHowMuchStateThereIs) {
  std::vector<Config> configs = {config_of("SGD"), config_of("RMSprop", R"({"momentum": 0.5})")};
  for (const Case& one : cases()) configs.push_back(one.config);
  const std::vector<at::Tensor> parameters = weights();
  for (Config& config : configs) {
    config.zero.offload_optimizer.device = OffloadDevice::kCpu;
    const auto placed = make_optimizer(config, parameters, memory())->placement().resident_bytes;
    // Blocks are whole pages.
    EXPECT_NEAR(static_cast<double>(placed) / static_cast<double>(4 * parameters.front().nbytes()),
                static_cast<double>(state_tensor_count(config.optimizer)), 0.25);
  }
}

TEST(OptimizerFactory, GivesTheBitsOfLibTorchsOptimizerWhereverTheStateLives) {
  std::vector<at::Tensor> seen;
  for (const Case& one : cases()) {
    for (const OffloadDevice device : {OffloadDevice::kNone, OffloadDevice::kCpu}) {
      Config config = one.config;
      config.zero.offload_optimizer.device = device;
      EXPECT_TRUE(at::equal(made_weights(config), one.wanted)) << one.name;
    }
    for (const at::Tensor& other : seen) EXPECT_FALSE(at::equal(one.wanted, other)) << one.name;
    seen.push_back(one.wanted);
  }
}

TEST(OptimizerFactory, KeepsStateInFewerBitsWhereTheConfigurationSaysSo) {
  Config config = config_of("AdamW", R"({"lr": 1e-3})");
  std::vector<std::uint64_t> bytes;
  std::vector<at::Tensor> seen;
  for (const StateDtype dtype : {StateDtype::kFp32, StateDtype::kBf16, StateDtype::kInt8}) {
    config.offload.state_dtype = dtype;
    config.zero.offload_optimizer.device = OffloadDevice::kCpu;
    bytes.push_back(make_optimizer(config, weights(), memory())->placement().resident_bytes);
    seen.push_back(made_weights(config));
    config.zero.offload_optimizer.device = OffloadDevice::kNone;
    EXPECT_TRUE(at::equal(made_weights(config), seen.back())) << static_cast<int>(dtype);
    EXPECT_TRUE(at::allclose(seen.back(), seen.front(), 0.0, 5e-4)) << static_cast<int>(dtype);
  }
  EXPECT_NEAR(static_cast<double>(bytes[0]) / static_cast<double>(bytes[1]), 2.0, 0.1);
  EXPECT_NEAR(static_cast<double>(bytes[0]) / static_cast<double>(bytes[2]), 4.0, 0.3);
  EXPECT_FALSE(at::equal(seen[0], seen[1]));
  EXPECT_FALSE(at::equal(seen[0], seen[2]));
}

TEST(OptimizerFactory, SetsTheRateOfEachStepForEveryKind) {
  for (const char* name : {"Adam", "AdamW", "SGD", "Adagrad", "RMSprop", "LARS"}) {
    Config config = config_of(name);
    config.optimizer.adam_w_mode = false;
    config.zero.offload_optimizer.device = OffloadDevice::kCpu;
    const std::vector<at::Tensor> parameters = weights();
    const at::Tensor start = parameters.front().detach().clone();
    const auto optimizer = make_optimizer(config, parameters, memory());
    const at::Tensor still = after_three_steps(*optimizer, parameters,
                                               [&](std::uint64_t) { set_rate(*optimizer, {.lr = 0.0, .betas = {}}); });
    EXPECT_TRUE(at::equal(still, start)) << name;
    set_rate(*optimizer, {.lr = 0.125, .betas = {}});
    EXPECT_EQ(optimizer->param_groups().front().options().get_lr(), 0.125) << name;
    EXPECT_FALSE(at::equal(after_three_steps(*optimizer, parameters), start)) << name;
  }
}

TEST(OptimizerFactory, SetsBetasWhereThereAreAny) {
  for (const bool decoupled : {false, true}) {
    Config config = config_of("Adam");
    config.optimizer.adam_w_mode = decoupled;
    const auto optimizer = make_optimizer(config, weights(), memory());
    set_rate(*optimizer, {.lr = 0.1, .betas = {{0.7, 0.99}}});
    torch::optim::OptimizerOptions& options = optimizer->param_groups().front().options();
    const auto betas = decoupled ? dynamic_cast<torch::optim::AdamWOptions&>(options).betas()
                                 : dynamic_cast<torch::optim::AdamOptions&>(options).betas();
    EXPECT_EQ(betas, std::make_tuple(0.7, 0.99));
  }
  const auto sgd = make_optimizer(config_of("SGD"), weights(), memory());
  EXPECT_NO_THROW(set_rate(*sgd, {.lr = 0.1, .betas = {{0.7, 0.99}}}));
}

/// An AdamW over four parameters, one to a sub-group, on disk; room for the state of one in memory.
class OnDisk {
 public:
  [[nodiscard]] std::unique_ptr<optimizer::Optimizer> make(double ratio) const {
    const std::uint64_t block = (2 * kNumel * sizeof(float) + kPage - 1) / kPage * kPage;
    offload::TiersOptions options;
    options.log = [](const std::string&) {};
    options.nvme_path = folder_.path().string();
    options.host_bytes = 3 * block + kPage;  // Two staging buffers and one block.
    Config config = config_of("AdamW");
    config.zero.offload_optimizer = {
        .device = OffloadDevice::kNvme, .buffer_count = 2, .pin_memory = false, .ratio = ratio};
    config.zero.sub_group_size = kNumel;
    return make_optimizer(config, weights(), std::make_shared<offload::Tiers>(std::move(options)));
  }

 private:
  test::TempDir folder_;
};

TEST(OptimizerFactory, OffloadsNoMoreThanTheRatioAllows) {
  const OnDisk on_disk;
  const optimizer::StatePlacement placed = on_disk.make(1.0)->placement();
  ASSERT_GT(placed.disk_bytes, 0U);
  ASSERT_GT(placed.resident_bytes, 0U);
  const double share =
      static_cast<double>(placed.disk_bytes) / static_cast<double>(placed.disk_bytes + placed.resident_bytes);
  EXPECT_EQ(on_disk.make(share)->placement().disk_bytes, placed.disk_bytes);
  EXPECT_THAT(message_of<BudgetExceeded>([&] { (void)on_disk.make(share * 0.99); }),
              AllOf(HasSubstr("zero_optimization.offload_optimizer.ratio"), HasSubstr("offload.host_bytes")));
}

TEST(OptimizerFactory, CutsBucketsOfGradientsAtTheirSize) {
  const auto host_bytes = [](std::uint64_t bucket) {
    const test::TempDir folder;
    offload::TiersOptions options;
    options.log = [](const std::string&) {};
    options.nvme_path = folder.path().string();
    Config config = config_of("AdamW");
    config.offload.gradients = OffloadDevice::kNvme;
    config.zero.reduce_bucket_size = bucket;
    const auto optimizer = make_optimizer(config, weights(16), std::make_shared<offload::Tiers>(std::move(options)));
    return optimizer->gradient_placement().host_bytes;
  };
  EXPECT_LT(host_bytes(kNumel), host_bytes(2 * kNumel)) << "staging buffers are as large as a bucket";
  EXPECT_LT(host_bytes(2 * kNumel), host_bytes(500'000'000));
}

}  // namespace
}  // namespace spillway::app::optimizer_factory_test
