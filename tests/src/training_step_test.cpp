#include <spillway/app/training/training_step.hpp>

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <numeric>
#include <string>
#include <utility>

#include <ATen/Context.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/lerp.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <spillway/app/data/batches.hpp>
#include <spillway/app/data/dataset.hpp>
#include <spillway/app/methods/moco.hpp>
#include <spillway/app/training/optimizer_factory.hpp>
#include <spillway/distributed/single_process.hpp>
#include <spillway/offload/error.hpp>
#include <spillway/queue/bank_state.hpp>

#include "support/errors.hpp"

namespace spillway::app::training_step_test {
namespace {

using ::testing::AllOf;
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
      return make_view(ViewMaker(reference.images, config.data, config.method), samples, {config.seed, 0, which});
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
  {
    const at::NoGradGuard no_grad;
    fixture.parameters.back().fill_(std::numeric_limits<float>::quiet_NaN());
    fixture.start.back().copy_(fixture.parameters.back());
  }
  EXPECT_THAT(message_of<Error>([&] { (void)fixture.run(1); }),
              AllOf(HasSubstr("the loss is nan"), HasSubstr("the value of head.fc2.bias"), HasSubstr("lower")));
  EXPECT_TRUE(fixture.parameters.front().equal(fixture.start.front()));
}

/// Has the gradient of one parameter be infinite for as long as `on`.
void inject(const at::Tensor& parameter, const bool& on) {
  parameter.register_hook(
      [&on](const at::Tensor& gradient) { return on ? gradient * std::numeric_limits<float>::infinity() : gradient; });
}

std::vector<at::Tensor> bank_and_average(Fixture& fixture) {
  std::vector<at::Tensor> copies{queue::take_state(*fixture.moco.bank()).rows.values.clone()};
  for (const NamedTensor& tensor : fixture.moco.state()) copies.push_back(tensor.tensor.detach().clone());
  return copies;
}

bool all_equal(const std::vector<at::Tensor>& a, const std::vector<at::Tensor>& b) {
  return std::ranges::equal(a, b, [](const at::Tensor& x, const at::Tensor& y) { return x.equal(y); });
}

TEST(TrainingStep, NamesTheGradientThatIsNotFiniteWhereNothingIsSkipped) {
  for (const bool narrow : {false, true}) {
    for (const double clipping : {0.0, 1.0}) {
      Config config = small_config();
      config.bf16 = {.enabled = narrow, .check_grad_overflow = false};
      config.gradient_clipping = clipping;
      Fixture fixture(config);
      (void)fixture.run(0);
      const bool on = true;
      inject(fixture.parameters[2], on);
      const auto before = bank_and_average(fixture);
      EXPECT_THAT(message_of<Error>([&] { (void)fixture.run(1); }),
                  HasSubstr("first tensor that is not finite is the gradient of encoder.bn1.bias"));
      for (std::size_t i = 0; i < fixture.start.size(); ++i) {
        EXPECT_TRUE(fixture.parameters[i].equal(fixture.start[i]));
      }
      EXPECT_EQ(fixture.moco.bank()->size(), 16);
    }
  }
}

TEST(TrainingStep, SkipsAnInjectedInfinityInSixteenBitsAndGoesOn) {
  for (const bool half : {false, true}) {
    Config config = small_config();
    config.fp16 = {.enabled = half, .initial_scale_power = 4};
    config.bf16.enabled = !half;
    Fixture fixture(config);
    (void)fixture.run(0);
    bool on = true;
    inject(fixture.parameters[0], on);
    const auto before = bank_and_average(fixture);
    const StepResult skipped = fixture.run(1);
    EXPECT_TRUE(skipped.skipped);
    EXPECT_EQ(skipped.overflow, "the gradient of encoder.fc1.weight");
    EXPECT_EQ(skipped.loss_scale, half ? 16.0 : 1.0);
    EXPECT_TRUE(all_equal(bank_and_average(fixture), before));
    EXPECT_EQ(fixture.distance(), 0.0);

    on = false;  // The control: the same step, made.
    EXPECT_FALSE(fixture.run(1).skipped);
    EXPECT_FALSE(all_equal(bank_and_average(fixture), before));
    EXPECT_EQ(fixture.moco.bank()->size(), 32);
    EXPECT_GT(fixture.distance(), 0.0);

    on = true;
    if (half) continue;
    for (std::uint64_t step = 2; step < 4; ++step) EXPECT_TRUE(fixture.run(step).skipped);
    for (std::uint64_t step = 0; step < 2; ++step) EXPECT_TRUE(fixture.run(step).skipped);
    EXPECT_THAT(message_of<Error>([&] { (void)fixture.run(2); }),
                AllOf(HasSubstr("5 steps in a row were skipped"), HasSubstr("the gradient of encoder.fc1.weight")));
  }
}

// Masters and averages as a checkpoint has them: the average moves towards the master, not to where it is rounded.
TEST(TrainingStep, HasTheMovingAverageFollowTheMasters) {
  Config config = small_config();
  config.fp16 = {.enabled = true, .initial_scale_power = 4};
  config.contrastive.momentum = 0.5;
  config.optimizer.lr = 1e-2;
  Fixture fixture(config);
  fixture.optimizer->observe_masters(
      [&](const at::Tensor& parameter, const at::Tensor& master) { fixture.moco.master_changed(parameter, master); });
  const auto average = [&] {
    for (const NamedTensor& tensor : fixture.moco.state()) {
      if (tensor.name == "momentum_encoder.encoder.fc1.weight") return tensor.tensor.clone();
    }
    return at::Tensor();
  };
  (void)fixture.run(0);
  const at::Tensor before = average();
  EXPECT_EQ(before.scalar_type(), at::kFloat);
  EXPECT_FALSE(fixture.run(1).skipped);
  at::Tensor master;
  fixture.optimizer->visit_state([&](const std::string& name, const at::Tensor& tensor) {
    if (name == "0/0.master") master = tensor.clone();
  });
  ASSERT_TRUE(master.defined());
  const at::Tensor rounded = fixture.parameters[0].detach().to(at::kFloat);
  EXPECT_FALSE(master.equal(rounded));
  EXPECT_TRUE(average().equal(at::lerp(before, master, 0.5)));
  EXPECT_FALSE(average().equal(at::lerp(before, rounded, 0.5)));
}

}  // namespace
}  // namespace spillway::app::training_step_test
