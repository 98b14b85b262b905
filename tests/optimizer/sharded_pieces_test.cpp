// Ranks that own parts of a tensor.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <sstream>
#include <string_view>
#include <vector>

#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/sum.h>
#include <ATen/ops/zeros.h>
#include <torch/optim/adamw.h>
#include <torch/optim/sgd.h>
#include <torch/serialize.h>

#include <spillway/offload/error.hpp>

#include "optimizer/sharded_fixture.hpp"

namespace spillway::test::sharded_pieces_test {
namespace {

using ::testing::HasSubstr;

constexpr std::int64_t kBlock = 16'384;

// Two that are cut, one of them transposed, among some that are not.
TensorGroups large_parameters() {
  const Gradients random(70'000);
  const auto leaf = [&](const at::Tensor& like, std::int64_t index) {
    return random.make(like, 0, index).clone().requires_grad_();
  };
  return {{leaf(at::zeros({300, 211}).t(), 1), leaf(at::zeros({17, 3}), 2)},
          {leaf(at::zeros({2 * kBlock + 7}), 3), leaf(at::zeros({211, 3}), 4)}};
}

// The same gradients for everyone, through autograd.
void step(torch::optim::Optimizer& optimizer, const TensorGroups& weights, std::int64_t number) {
  const Gradients gradients(70'000);
  at::Tensor loss = at::zeros({});
  std::int64_t index = 0;
  for (const Tensors& group : weights) {
    for (const at::Tensor& weight : group) {
      loss = loss + (weight * gradients.make(weight.detach(), number, ++index)).sum().to(at::kFloat);
    }
  }
  loss.backward();
  optimizer.step();
  optimizer.zero_grad();
}

std::string archive_of(const torch::optim::Optimizer& optimizer) {
  std::stringstream archive;
  torch::save(optimizer, archive);
  return archive.str();
}

void load_into(torch::optim::Optimizer& optimizer, const std::string& archive) {
  std::stringstream stream(archive);
  torch::load(optimizer, stream);
}

TEST(ShardedPieces, OfOneTensorAreOwnedByWeightWithTheirState) {
  std::atomic<std::uint64_t> state_bytes = 0;
  with_ranks(3, [&](Rank& rank) {
    const Tensors weights{at::ones({20 * kBlock + 100}).requires_grad_()};
    OptimizerConfig config = rank.config(GradientDevice::kNvme, StateDevice::kNvme);
    config.shard_weights = {1.0, 3.0, 0.0};
    const auto optimizer = rank.adamw(weights, config);
    const std::uint64_t owned = optimizer->gradient_placement().owned_numel;
    EXPECT_EQ(owned, rank.number == 0 ? 5U * kBlock : rank.number == 1 ? 15U * kBlock + 100 : 0U);
    EXPECT_EQ(optimizer->placement().state_bytes, 8 * owned);
    state_bytes += optimizer->placement().state_bytes;
  });
  EXPECT_EQ(state_bytes, 8U * (20 * kBlock + 100));
}

TEST(ShardedPieces, HaveTheBitsAndTheArchiveOfAPlainOptimizer) {
  at::set_num_threads(1);
  for (const Recipe& recipe : one_of_each_kind()) {
    SCOPED_TRACE(recipe.name);
    const TensorGroups plain_weights = large_parameters();
    const auto plain = recipe.make(plain_weights);
    for (std::int64_t i = 0; i < 2; ++i) step(*plain, plain_weights, i);
    const TensorGroups middle = clone(plain_weights);
    for (std::int64_t i = 2; i < 4; ++i) step(*plain, plain_weights, i);
    with_ranks(2, [&](Rank& rank) {
      // Where LibTorch puts it, or in blocks: each rank's own affair.
      OptimizerConfig config =
          rank.config(GradientDevice::kCpu, rank.number == 0 ? StateDevice::kNvme : StateDevice::kNone);
      config.shard_weights = {1.0, 2.0};
      config.sub_group_numel = 20'000;
      const TensorGroups weights = large_parameters();
      const auto optimizer = wrap(recipe.make(weights), config);
      EXPECT_GT(optimizer->gradient_placement().owned_numel, 0U);
      for (std::int64_t i = 0; i < 2; ++i) step(*optimizer, weights, i);
      EXPECT_EQ(differences(weights, middle), "");
      const std::string archive = archive_of(*optimizer);
      step(*optimizer, weights, 2);  // Saving has changed nothing.
      step(*optimizer, weights, 3);
      EXPECT_EQ(differences(weights, plain_weights), "");
      // Into a plain optimizer; into other shards, of which one steps a while before; into whole tensors.
      const TensorGroups alone = clone(middle);
      const auto loaded = recipe.make(alone);
      load_into(*loaded, archive);
      for (std::int64_t i = 2; i < 4; ++i) step(*loaded, alone, i);
      EXPECT_EQ(differences(alone, plain_weights), "");
      for (const ShardGranularity granularity : {ShardGranularity::kBlock, ShardGranularity::kTensor}) {
        config.shard_weights = {5.0, 1.0};
        config.shard_granularity = granularity;
        const TensorGroups other = clone(middle);
        const auto sharded = wrap(recipe.make(other), config);
        step(*sharded, other, 9);
        {
          const at::NoGradGuard no_grad;
          for (std::size_t g = 0; g < other.size(); ++g) {
            for (std::size_t i = 0; i < other[g].size(); ++i) other[g][i].copy_(middle[g][i]);
          }
        }
        load_into(*sharded, archive);
        for (std::int64_t i = 2; i < 4; ++i) step(*sharded, other, i);
        EXPECT_EQ(differences(other, plain_weights), "");
      }
    });
  }
}

TEST(ShardedPieces, HaveMastersAndCodesThatGoToOtherShards) {
  for (const StateFormat format : {StateFormat::kBFloat16, StateFormat::kBlockwise8}) {
    for (const MasterFormat masters : {MasterFormat::kFloat32, MasterFormat::kRemainder}) {
      with_ranks(3, [&](Rank& rank) {
        TensorGroups weights = large_parameters();
        weights[0][0] = weights[0][0].detach().to(at::kBFloat16).requires_grad_();
        OptimizerConfig config = rank.config(GradientDevice::kCpu, StateDevice::kNvme);
        config.kernels = UpdateKernels::kFused;
        config.state_format = format;
        config.masters = masters;
        const auto optimizer = wrap(adamw().make(weights), config);
        for (std::int64_t i = 0; i < 2; ++i) step(*optimizer, weights, i);
        const std::string archive = archive_of(*optimizer);
        const TensorGroups other = clone(weights);
        config.shard_weights = {0.0, 1.0, 4.0};
        const auto reloaded = wrap(adamw().make(other), config);
        load_into(*reloaded, archive);
        for (std::int64_t i = 2; i < 4; ++i) {
          step(*optimizer, weights, i);
          step(*reloaded, other, i);
        }
        EXPECT_EQ(differences(other, weights), "");
      });
    }
  }
}

// What plain steps have left in the optimizer is taken over in parts.
TEST(ShardedPieces, TakeOverTheStateOfPlainSteps) {
  at::set_num_threads(1);
  const TensorGroups plain_weights = large_parameters();
  const auto plain = adamw().make(plain_weights);
  for (std::int64_t i = 0; i < 4; ++i) step(*plain, plain_weights, i);
  with_ranks(2, [&](Rank& rank) {
    const TensorGroups weights = large_parameters();
    auto unwrapped = adamw().make(weights);
    for (std::int64_t i = 0; i < 2; ++i) step(*unwrapped, weights, i);
    for (const Tensors& group : weights) {
      for (const at::Tensor& weight : group) weight.mutable_grad().reset();
    }
    const auto optimizer = wrap(std::move(unwrapped), rank.config());
    for (std::int64_t i = 2; i < 4; ++i) step(*optimizer, weights, i);
    EXPECT_EQ(differences(weights, plain_weights), "");
  });
}

TEST(ShardedPieces, FollowAParameterToOtherMemoryAndRaiseItsVersion) {
  with_ranks(2, [](Rank& rank) {
    const Tensors weights{at::zeros({4 * kBlock}).requires_grad_()};
    const auto optimizer = rank.sgd(weights, 1.0, rank.config());
    const auto train = [&] {
      weights[0].sum().backward();
      optimizer->step();
    };
    train();
    weights[0].set_data(at::ones({4 * kBlock}).mul(5.0));
    const auto version = weights[0].unsafeGetTensorImpl()->version_counter().current_version();
    train();
    EXPECT_TRUE(bit_equal(weights[0], at::ones({4 * kBlock}).mul(4.0)));
    EXPECT_GT(weights[0].unsafeGetTensorImpl()->version_counter().current_version(), version);
  });
}

// SGD without momentum, described by somebody who says, or does not, that it looks at one element at a time.
class OwnFields final : public StateFields {
 public:
  explicit OwnFields(bool element_wise) : element_wise_(element_wise) {}
  std::string_view optimizer() const noexcept override { return "my SGD"; }
  std::span<const std::string_view> names() const noexcept override { return {}; }
  optimizer::FieldMask needed(const torch::optim::OptimizerOptions& /*options*/) const override { return 0U; }
  std::unique_ptr<torch::optim::OptimizerParamState> make_zero_state() const override { return nullptr; }
  bool element_wise() const noexcept override { return element_wise_; }
  at::Tensor& tensor(torch::optim::OptimizerParamState& /*state*/, std::size_t /*field*/) const override {
    throw Error("there is no tensor");
  }

 private:
  bool element_wise_;
};

TEST(ShardedPieces, AreNotMadeWhereAnUpdateNeedsTheWholeTensor) {
  with_ranks(2, [](Rank& rank) {
    const auto owned = [&](const at::Tensor& weight, const OptimizerConfig& config) {
      const auto optimizer = rank.sgd({weight.detach().clone().requires_grad_()}, 1.0, config);
      const std::uint64_t numel = optimizer->gradient_placement().owned_numel;
      return numel == 0 || numel == static_cast<std::uint64_t>(weight.numel()) ? "whole" : "part";
    };
    const at::Tensor weight = at::ones({4 * kBlock});
    const at::Tensor narrow = at::ones({4 * kBlock}, at::kBFloat16);
    OptimizerConfig config = rank.config();
    EXPECT_EQ(owned(weight, config), "part");
    EXPECT_EQ(owned(at::ones({kBlock}), config), "whole");
    EXPECT_EQ(owned(narrow, config), "whole");
    config.kernels = UpdateKernels::kFused;
    EXPECT_EQ(owned(narrow, config), "part");
    config = rank.config();
    config.shard_granularity = ShardGranularity::kTensor;
    EXPECT_EQ(owned(weight, config), "whole");
    for (const bool element_wise : {true, false}) {
      config = rank.config();
      config.state_fields = std::make_shared<OwnFields>(element_wise);
      EXPECT_EQ(owned(weight, config), element_wise ? "part" : "whole");
    }
  });
}

TEST(ShardedPieces, OfWeightsThatCantBeRightAreRefusedAndTheModelIsAsItWas) {
  for (const std::vector<double>& wrong : {std::vector{-1.0, 2.0}, {0.0, 0.0}, {1.0}, {1.0, 1.0, 1.0}}) {
    with_ranks(2, [&](Rank& rank) {
      const Tensors weights{at::ones({4 * kBlock}).requires_grad_()};
      OptimizerConfig config = rank.config();
      config.shard_weights = wrong;
      EXPECT_THAT(message_of<ConfigError>([&] { (void)rank.adamw(weights, config); }), HasSubstr("shard weights"));
      weights[0].sum().backward();
      EXPECT_TRUE(weights[0].grad().defined());  // No hook has stayed.
      EXPECT_TRUE(bit_equal(weights[0], at::ones({4 * kBlock})));
    });
  }
}

}  // namespace
}  // namespace spillway::test::sharded_pieces_test
