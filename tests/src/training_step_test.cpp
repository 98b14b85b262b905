#include <spillway/app/training/training_step.hpp>

#include <cmath>
#include <limits>
#include <memory>
#include <numeric>
#include <string>
#include <utility>

#include <ATen/Context.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <spillway/app/data/batches.hpp>
#include <spillway/app/data/dataset.hpp>
#include <spillway/app/methods/moco.hpp>
#include <spillway/app/training/optimizer_factory.hpp>
#include <spillway/distributed/single_process.hpp>
#include <spillway/offload/error.hpp>

#include "support/errors.hpp"

namespace spillway::app::training_step_test {
namespace {

using ::testing::HasSubstr;

Config small_config() {
  Config config;
  config.train_batch_size = 16;
  config.micro_batch_size_per_gpu = 16;
  config.encoder.kind = EncoderKind::kMlp;
  config.encoder.hidden = {16};
  config.contrastive.projection_hidden_dim = 16;
  config.contrastive.projection_dim = 8;
  config.contrastive.queue_size = 64;
  config.contrastive.bank.segment_rows = 16;
  config.optimizer.kind = OptimizerKind::kSgd;
  config.optimizer.lr = 1.0;
  config.gradient_clipping = 0.0;
  config.data.synthetic = {.images = 64, .classes = 4, .side = 8};
  return config;
}

std::shared_ptr<offload::Tiers> memory() {
  offload::TiersOptions options;
  options.log = [](const std::string&) {};
  return std::make_shared<offload::Tiers>(std::move(options));
}

/// Everything that a step needs, in the state before the first one.
struct Fixture {
  explicit Fixture(Config wanted)
      : config(std::move(wanted)), images(make_synthetic(config.data.synthetic, 0)), plan(config, images.size()) {
    for (const NamedTensor& parameter : moco.network().parameters()) {
      parameters.push_back(parameter.tensor);
      start.push_back(parameter.tensor.detach().clone());
    }
    optimizer = make_optimizer(config, parameters, tiers);
    step = std::make_unique<TrainingStep>(config, images, moco, *optimizer, rank);
  }

  StepResult run(std::uint64_t index) {
    const StepPlace place = plan.place(index);
    return step->run(plan.order(place.epoch), place);
  }

  /// Length of the way that the weights went from the start.
  [[nodiscard]] double distance() const {
    double squares = 0.0;
    for (std::size_t i = 0; i < start.size(); ++i) {
      squares += (parameters[i] - start[i]).detach().to(at::kDouble).pow(2).sum().item<double>();
    }
    return std::sqrt(squares);
  }

  Config config;
  ImageSet images;
  RunPlan plan;
  distributed::SingleProcess rank;
  std::shared_ptr<offload::Tiers> tiers = memory();
  Moco moco = [this] { return at::manual_seed(1), Moco(config, {images.width, images.height}, tiers); }();
  std::vector<at::Tensor> parameters;
  std::vector<at::Tensor> start;
  std::unique_ptr<optimizer::Optimizer> optimizer;
  std::unique_ptr<TrainingStep> step;
};

TEST(TrainingStep, FillsTheBankFirstAndLearnsFromItThen) {
  Fixture fixture(small_config());
  EXPECT_EQ(fixture.run(0).loss, 0.0) << "an empty bank has nothing to tell apart";
  EXPECT_EQ(fixture.moco.bank()->size(), 16);
  EXPECT_EQ(fixture.distance(), 0.0);

  const StepResult second = fixture.run(1);
  EXPECT_GT(second.loss, 0.0);
  EXPECT_EQ(second.samples, 16U);
  EXPECT_EQ(fixture.moco.bank()->size(), 32);
  for (const at::Tensor& parameter : fixture.parameters) EXPECT_FALSE(parameter.grad().defined());
}

// SGD with rate 1 goes the gradient's own length.
TEST(TrainingStep, GoesAsFarAsTheGradientIsLongUnlessItIsClipped) {
  Fixture free(small_config());
  (void)free.run(0);
  const double norm = free.run(1).grad_norm;
  EXPECT_NEAR(free.distance(), norm, 1e-4 * norm);

  Config config = small_config();
  config.gradient_clipping = norm / 2;
  Fixture clipped(config);
  (void)clipped.run(0);
  EXPECT_NEAR(clipped.run(1).grad_norm, norm, 1e-6 * norm) << "the norm is that before clipping";
  EXPECT_NEAR(clipped.distance(), norm / 2, 1e-4 * norm);
}

// With one batch-norm group the order of the keys doesn't matter, so that the losses can be had from outside.
TEST(TrainingStep, WeighsMicroBatchesByTheirRows) {
  Config config = small_config();
  config.data.synthetic.images = 23;  // The last window has 7 rows: micro-batches of 4 and 3.
  config.data.synthetic.classes = 1;
  config.contrastive.batch_norm_groups = 1;
  config.gradient_accumulation_steps = 2;
  config.micro_batch_size_per_gpu = 8;
  Fixture fixture(config);
  Fixture reference(config);
  (void)fixture.run(0);
  (void)reference.run(0);
  const StepResult result = fixture.run(1);

  double expected = 0.0;
  const EpochOrder order = reference.plan.order(0);
  for (const std::uint64_t micro : {0U, 1U}) {
    const auto samples = order.micro_batch(1, 0, micro);
    const auto view = [&](std::uint32_t which) {
      return make_view(reference.images, samples, config.data.augment, {config.seed, 0, which});
    };
    const double loss = reference.moco.loss({view(0), view(1)}).item<double>();
    expected += loss * static_cast<double>(samples.size()) / 7.0;
  }
  EXPECT_EQ(result.samples, 7U);
  EXPECT_NEAR(result.loss, expected, 1e-5);
  EXPECT_EQ(fixture.moco.bank()->size(), 23);
}

TEST(TrainingStep, StopsBeforeALossThatIsNotFiniteReachesTheWeights) {
  Fixture fixture(small_config());
  (void)fixture.run(0);
  const at::NoGradGuard no_grad;
  fixture.parameters.back().fill_(std::numeric_limits<float>::quiet_NaN());
  fixture.start.back().copy_(fixture.parameters.back());
  EXPECT_THAT(message_of<Error>([&] { (void)fixture.run(1); }), HasSubstr("the loss is"));
  EXPECT_TRUE(fixture.parameters.front().equal(fixture.start.front()));
}

}  // namespace
}  // namespace spillway::app::training_step_test
