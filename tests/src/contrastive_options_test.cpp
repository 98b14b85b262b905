// What the keys of `contrastive` that change a method do: each against a model of its own, and in whole runs.
#include <cmath>
#include <functional>
#include <map>
#include <memory>
#include <ostream>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include <ATen/Context.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <spillway/app/config/config_keys.hpp>
#include <spillway/app/data/batches.hpp>
#include <spillway/app/data/dataset.hpp>
#include <spillway/app/methods/moco.hpp>
#include <spillway/app/methods/trained_temperature.hpp>
#include <spillway/app/training/optimizer_factory.hpp>
#include <spillway/app/training/train.hpp>
#include <spillway/app/training/training_step.hpp>
#include <spillway/distributed/single_process.hpp>
#include <support/temp_dir.hpp>

namespace spillway::app::contrastive_options_test {
namespace {

constexpr ImageGeometry kGeometry{8, 8};
constexpr std::int64_t kRows = 6;

Config small_config(Method method) {
  Config config;
  apply_method_defaults(config, method);
  config.encoder.kind = EncoderKind::kMlp;
  config.encoder.hidden = {32, 32};
  config.contrastive.projection_hidden_dim = 32;
  config.contrastive.projection_dim = 16;
  config.contrastive.predictor_hidden_dim = 8;
  config.contrastive.queue_size = 64;
  config.contrastive.bank.segment_rows = 16;
  config.train_batch_size = 16;
  config.micro_batch_size_per_gpu = 4;
  config.gradient_accumulation_steps = 4;
  config.data.source = "synthetic";
  config.data.synthetic = {.images = 100, .classes = 4, .side = 8};
  config.evaluation.draws = 1;
  config.steps = 6;
  config.epochs = 0;
  return config;
}

std::shared_ptr<offload::Tiers> memory() {
  offload::TiersOptions options;
  options.log = [](const std::string&) {};
  return std::make_shared<offload::Tiers>(std::move(options));
}

std::unique_ptr<TrainingMethod> make(const Config& config) {
  at::manual_seed(3);
  return make_method(config, kGeometry, memory());
}

ViewPair random_batch(const at::Tensor& labels) {
  at::manual_seed(4);
  return {.view0 = at::rand({kRows, 1, 8, 8}), .view1 = at::rand({kRows, 1, 8, 8}), .labels = labels};
}

/// The loss of a second batch, which meets the rows of the first.
double second_loss(const Config& config, const at::Tensor& first_labels, const at::Tensor& second_labels) {
  const auto method = make(config);
  (void)method->loss(random_batch(first_labels));
  method->finish_window(true);
  return method->loss(random_batch(second_labels)).item<double>();
}

TEST(ExcludeSameClass, LeavesRowsOfTheQuerysLabelOut) {
  Config config = small_config(Method::kMoco);
  const at::Tensor ids = at::arange(kRows, at::kLong);
  const at::Tensor zeros = at::zeros({kRows}, at::kLong);
  const double plain = second_loss(config, ids, ids);
  config.contrastive.exclude_same_class = true;
  EXPECT_EQ(second_loss(config, zeros, zeros), 0.0) << "no negative is left";
  EXPECT_DOUBLE_EQ(second_loss(config, ids, ids + 100), plain) << "all are";
  const double some = second_loss(config, ids, ids);
  EXPECT_LT(some, plain);
  EXPECT_GT(some, 0.0);
}

TEST(TrainedTemperature, IsANumberUnlessItIsTrained) {
  ContrastiveConfig config;
  config.temperature = 0.25;
  const TrainedTemperature fixed(config);
  EXPECT_TRUE(fixed.parameters().empty());
  EXPECT_EQ(fixed.get().value(), 0.25);
  config.learnable_temperature = true;
  const TrainedTemperature trained(config);
  ASSERT_EQ(trained.parameters().size(), 1U);
  EXPECT_NEAR(trained.get().value(), 0.25, 1e-7);
}

TEST(TrainedTemperature, StaysAtAHundredthOrAbove) {
  ContrastiveConfig config;
  config.learnable_temperature = true;
  TrainedTemperature trained(config);
  const at::NoGradGuard no_grad;
  trained.parameters().front().tensor.fill_(9.0);
  trained.bound();
  EXPECT_NEAR(trained.get().value(), 0.01, 1e-7);
  trained.parameters().front().tensor.fill_(-9.0);
  trained.bound();
  EXPECT_NEAR(trained.get().value(), std::exp(9.0), 1e-1) << "there is no bound above";
}

class LearnableTemperature : public ::testing::TestWithParam<Method> {};

TEST_P(LearnableTemperature, GetsTheSlopeOfTheLoss) {
  Config config = small_config(GetParam());
  config.contrastive.learnable_temperature = true;
  const auto loss_at = [&](double shift) {
    const auto method = make(config);
    const at::Tensor labels = at::arange(kRows, at::kLong) % 3;
    (void)method->loss(random_batch(labels));
    method->finish_window(true);
    const at::Tensor log_scale = method->parameters().back().tensor;
    EXPECT_EQ(method->parameters().back().name, "temperature.log_scale");
    EXPECT_TRUE(method->undecayed_parameters().front().tensor.is_same(log_scale));
    {
      const at::NoGradGuard no_grad;
      log_scale.add_(shift);
    }
    const at::Tensor loss = method->loss(random_batch(labels));
    loss.backward();
    return std::pair(loss.item<double>(), log_scale.grad().item<double>());
  };
  constexpr double kShift = 1e-2;
  const double slope = (loss_at(kShift).first - loss_at(-kShift).first) / (2 * kShift);
  EXPECT_NEAR(loss_at(0.0).second, slope, 1e-3 + 1e-2 * std::abs(slope));
}

INSTANTIATE_TEST_SUITE_P(All, LearnableTemperature, ::testing::Values(Method::kMoco, Method::kSimClr, Method::kSupCon),
                         [](const auto& test) { return std::string(to_string(test.param)); });

TEST(ScheduledMomentum, IsConstantOrRisesToOneAlongHalfACosine) {
  ContrastiveConfig config;
  config.momentum = 0.9;
  EXPECT_EQ(ScheduledMomentum(config).at(7, 8), 0.9);
  config.momentum_schedule = MomentumSchedule::kCosine;
  const ScheduledMomentum rising(config);
  EXPECT_DOUBLE_EQ(rising.at(0, 8), 0.9);
  EXPECT_DOUBLE_EQ(rising.at(4, 8), 0.95);  // 1 - 0.1 (cos(pi / 2) + 1) / 2.
  EXPECT_DOUBLE_EQ(rising.at(8, 8), 1.0);
}

TEST(QueueSchedule, GivesTheBankTheLengthOfEachStep) {
  Config config = small_config(Method::kMoco);
  config.contrastive.queue_schedule = {.first_rows = 8, .steps = 4};
  const auto method = make(config);
  std::vector<std::int64_t> lengths;
  for (std::uint64_t step = 0; step < 6; ++step) {
    method->begin_step(step, 6);
    lengths.push_back(method->bank()->capacity());
  }
  EXPECT_THAT(lengths, ::testing::ElementsAre(8, 22, 36, 50, 64, 64));
}

/// One step of SGD at rate 1, so that the weights move by their gradient.
struct OneStep {
  explicit OneStep(const Config& given) : config(given), images(make_synthetic(config.data.synthetic, 0)) {
    config.optimizer.kind = OptimizerKind::kSgd;
    config.optimizer.lr = 1.0;
    config.gradient_clipping = 0.0;
    method = make(config);
  }

  double run() {
    std::vector<at::Tensor> parameters;
    for (const NamedTensor& parameter : method->parameters()) parameters.push_back(parameter.tensor);
    const auto optimizer = make_optimizer(config, parameters, memory());
    distributed::SingleProcess rank;
    const RunPlan plan(config, images.size());
    return TrainingStep(config, images, *method, *optimizer, rank).run(plan.order(0), plan.place(0)).loss;
  }

  /// The same by one graph over all micro-batches.
  double run_naive() {
    const RunPlan plan(config, images.size());
    const EpochOrder order = plan.order(0);
    std::vector<std::vector<at::Tensor>> views(3);  // The last one has the temperature.
    std::vector<at::Tensor> labels;
    for (std::uint64_t micro = 0; micro < config.gradient_accumulation_steps; ++micro) {
      const auto samples = order.micro_batch(0, 0, micro);
      const auto view = [&](std::uint32_t which) {
        return make_view(ViewMaker(images, config.data, config.method), samples, {config.seed, 0, which});
      };
      const std::vector<at::Tensor> embedded = method->window_loss()->embed({.view0 = view(0), .view1 = view(1)});
      for (std::size_t i = 0; i < views.size(); ++i) views[i].push_back(embedded[i]);
      labels.push_back(make_labels(images, samples));
    }
    const at::Tensor loss =
        method->window_loss()->compare({at::cat(views[0]), at::cat(views[1]), at::cat(views[2])}, at::cat(labels));
    loss.backward();
    const at::NoGradGuard no_grad;
    for (const NamedTensor& parameter : method->parameters()) parameter.tensor.sub_(parameter.tensor.grad());
    return loss.item<double>();
  }

  Config config;
  ImageSet images;
  std::unique_ptr<TrainingMethod> method;
};

void expect_close(const std::vector<NamedTensor>& a, const std::vector<NamedTensor>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t i = 0; i < a.size(); ++i) {
    EXPECT_TRUE(at::allclose(a[i].tensor, b[i].tensor, /*rtol=*/1e-5, /*atol=*/1e-6)) << a[i].name;
  }
}

class CachedWindow : public ::testing::TestWithParam<Method> {};

TEST_P(CachedWindow, HasTheGradientOfAllRowsTogether) {
  Config config = small_config(GetParam());
  const double plain = OneStep(config).run();
  config.contrastive.accumulation = Accumulation::kCached;
  config.contrastive.learnable_temperature = true;
  OneStep cached(config);
  OneStep naive(config);
  const double loss = cached.run();
  EXPECT_NEAR(loss, naive.run_naive(), 1e-5);
  expect_close(cached.method->parameters(), naive.method->parameters());
  expect_close(cached.method->network().buffers(), naive.method->network().buffers());
  EXPECT_GT(loss, plain + 0.1) << "there are four times as many rows to be told apart";
}

INSTANTIATE_TEST_SUITE_P(All, CachedWindow, ::testing::Values(Method::kSimClr, Method::kSupCon),
                         [](const auto& test) { return std::string(to_string(test.param)); });

struct Option {
  const char* name;
  Method method;
  std::function<void(ContrastiveConfig&)> set;
};

std::ostream& operator<<(std::ostream& out, const Option& option) { return out << option.name; }

class WholeRun : public ::testing::TestWithParam<Option> {};

/// Larger, so that state, gradients and bank do not fit in what the run on disk may have.
Config large_config(Method method) {
  Config config = small_config(method);
  config.encoder.hidden = {64, 64, 64, 64};
  config.contrastive.projection_hidden_dim = 64;
  config.contrastive.queue_size = 256;
  return config;
}

Summary run(Config config, OffloadDevice device) {
  const test::TempDir folder;
  std::ostringstream out;
  config.out = folder / "run";
  config.aio.queue_depth = 8;
  config.offload.nvme_paths = {folder.path()};
  // Either the state streams, beside a bank, or the gradients, which every backward adds to.
  (config.has_bank() ? config.zero.offload_optimizer.device : config.offload.gradients) = device;
  config.zero.sub_group_size = 5000;
  config.contrastive.bank.device = device;
  if (device == OffloadDevice::kNvme) {
    config.contrastive.bank.host_bytes = config.has_bank() ? 48U << 10U : 0;
    config.offload.host_bytes = config.has_bank() ? config.contrastive.bank.host_bytes + 5 * 36864 : 96U << 10U;
  }
  Summary summary = train(config, {out});
  EXPECT_EQ(summary.steps_off_prediction, 0U) << out.str();
  return summary;
}

TEST_P(WholeRun, IsAnotherAndTheSameInMemoryAndOnDiskAsPredicted) {
  Config config = large_config(GetParam().method);
  static std::map<Method, std::string> without;
  if (without[config.method].empty()) without[config.method] = run(config, OffloadDevice::kNone).weights_xxh3;
  GetParam().set(config.contrastive);
  const std::string in_memory = run(config, OffloadDevice::kNone).weights_xxh3;
  EXPECT_NE(in_memory, without[config.method]);
  const Summary on_disk = run(config, OffloadDevice::kNvme);
  EXPECT_EQ(on_disk.weights_xxh3, in_memory);
  EXPECT_GT(on_disk.read_bytes, 0U);
}

std::vector<Option> options() {
  return {
      {"RowsOf8Bits", Method::kMoco, [](ContrastiveConfig& config) { config.bank.dtype = BankDtype::kInt8; }},
      {"OtherClasses", Method::kMoco, [](ContrastiveConfig& config) { config.exclude_same_class = true; }},
      {"GrowingBank", Method::kMoco,
       [](ContrastiveConfig& config) { config.queue_schedule = {.first_rows = 16, .steps = 40}; }},
      {"RisingMomentum", Method::kMoco,
       [](ContrastiveConfig& config) { config.momentum_schedule = MomentumSchedule::kCosine; }},
      {"RisingMomentumOfByol", Method::kByol,
       [](ContrastiveConfig& config) { config.momentum_schedule = MomentumSchedule::kCosine; }},
      {"TrainedTemperature", Method::kMoco, [](ContrastiveConfig& config) { config.learnable_temperature = true; }},
      {"TrainedTemperatureOfSimClr", Method::kSimClr,
       [](ContrastiveConfig& config) { config.learnable_temperature = true; }},
      {"CachedSimClr", Method::kSimClr, [](ContrastiveConfig& config) { config.accumulation = Accumulation::kCached; }},
      {"CachedWithTemperature", Method::kSupCon,
       [](ContrastiveConfig& config) {
         config.accumulation = Accumulation::kCached;
         config.learnable_temperature = true;
       }},
  };
}

INSTANTIATE_TEST_SUITE_P(Options, WholeRun, ::testing::ValuesIn(options()),
                         [](const auto& test) { return std::string(test.param.name); });

}  // namespace
}  // namespace spillway::app::contrastive_options_test
