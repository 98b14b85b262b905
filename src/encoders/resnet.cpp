#include <spillway/app/encoders/resnet.hpp>

#include <array>
#include <string>
#include <utility>
#include <vector>

#include <ATen/ops/adaptive_avg_pool2d.h>
#include <ATen/ops/max_pool2d.h>
#include <torch/nn/init.h>
#include <torch/nn/modules/conv.h>

#include <spillway/app/encoders/activation_checkpoint.hpp>
#include <spillway/app/encoders/grouped_batch_norm.hpp>
#include <spillway/app/encoders/layer_input.hpp>
#include <spillway/offload/check.hpp>

namespace spillway::app {
namespace {

using Convolution = torch::nn::Conv2dImpl;

constexpr std::int64_t kColours = 3;
constexpr std::int64_t kStemChannels = 64;

/// What the networks of the paper's table differ in.
struct Layout {
  std::array<std::int64_t, 4> blocks;  // Of each stage.
  bool bottleneck;                     // Blocks of three layers, the last one four times as wide.
};

Layout layout_of(std::int64_t depth) {
  SPILLWAY_CHECK(depth == 18 || depth == 34 || depth == 50, "a residual network of 18, 34 or 50 layers");
  if (depth == 18) return {{2, 2, 2, 2}, false};
  return {{3, 4, 6, 3}, depth == 50};
}

std::shared_ptr<Convolution> convolution(std::int64_t in, std::int64_t out, std::int64_t side, std::int64_t stride) {
  // The batch-norm that follows has a bias of its own.
  const auto options = torch::nn::Conv2dOptions(in, out, side).stride(stride).padding(side / 2).bias(false);
  auto made = std::make_shared<Convolution>(options);
  torch::nn::init::kaiming_normal_(made->weight, 0.0, torch::kFanOut, torch::kReLU);
  return made;
}

at::Tensor convolve(Convolution& layer, const at::Tensor& x) { return layer.forward(input_of(layer.weight, x)); }

/// Brings a block's input to the shape of its output. Its children have numbers for names.
class Downsample final : public torch::nn::Module {
 public:
  Downsample(std::int64_t in, std::int64_t out, std::int64_t stride, std::int64_t groups)
      : convolution_(register_module("0", convolution(in, out, 1, stride))),
        norm_(register_module("1", std::make_shared<GroupedBatchNorm>(out, groups))) {}

  at::Tensor forward(const at::Tensor& x, Pass pass) { return norm_->forward(convolve(*convolution_, x), pass); }

 private:
  std::shared_ptr<Convolution> convolution_;
  std::shared_ptr<GroupedBatchNorm> norm_;
};

struct BlockShape {
  std::int64_t in = 0;
  std::int64_t width = 0;  // Of the inner layers.
  std::int64_t out = 0;
  std::int64_t stride = 1;
};

/// Convolutions with a batch-norm each, and a way around them.
class Block final : public torch::nn::Module {
 public:
  Block(const BlockShape& shape, bool bottleneck, const ResNetOptions& options) {
    if (bottleneck) {
      add(shape.in, shape.width, 1, 1, options.groups);
      add(shape.width, shape.width, 3, shape.stride, options.groups);
      add(shape.width, shape.out, 1, 1, options.groups);
    } else {
      add(shape.in, shape.width, 3, shape.stride, options.groups);
      add(shape.width, shape.out, 3, 1, options.groups);
    }
    if (options.zero_init_residual) torch::nn::init::zeros_(norms_.back()->weight);
    if (shape.stride != 1 || shape.in != shape.out) {
      downsample_ = register_module("downsample",
                                    std::make_shared<Downsample>(shape.in, shape.out, shape.stride, options.groups));
    }
  }

  at::Tensor forward(const at::Tensor& input, Pass pass) {
    at::Tensor x = input;
    for (std::size_t layer = 0; layer < norms_.size(); ++layer) {
      // In place: neither a batch-norm nor the sum needs its output for its gradient.
      if (layer > 0) x = x.relu_();
      x = norms_[layer]->forward(convolve(*convolutions_[layer], x), pass);
    }
    return x.add(downsample_ ? downsample_->forward(input, pass) : input).relu_();
  }

 private:
  void add(std::int64_t in, std::int64_t out, std::int64_t side, std::int64_t stride, std::int64_t groups) {
    const std::string number = std::to_string(norms_.size() + 1);
    convolutions_.push_back(register_module("conv" + number, convolution(in, out, side, stride)));
    norms_.push_back(register_module("bn" + number, std::make_shared<GroupedBatchNorm>(out, groups)));
  }

  std::vector<std::shared_ptr<Convolution>> convolutions_;
  std::vector<std::shared_ptr<GroupedBatchNorm>> norms_;
  std::shared_ptr<Downsample> downsample_;  // Null where input and output have one shape.
};

/// Blocks of one width: what is checkpointed. Its children have numbers for names.
class Stage final : public torch::nn::Module {
 public:
  void add(std::shared_ptr<Block> block) {
    blocks_.push_back(register_module(std::to_string(blocks_.size()), std::move(block)));
  }

  at::Tensor forward(const at::Tensor& input, Pass pass) {
    at::Tensor x = input;
    for (const std::shared_ptr<Block>& block : blocks_) x = block->forward(x, pass);
    return x;
  }

 private:
  std::vector<std::shared_ptr<Block>> blocks_;
};

class ResNet final : public Backbone {
 public:
  explicit ResNet(const ResNetOptions& options)
      : cifar_stem_(options.cifar_stem), checkpointing_(options.checkpointing), feature_dim_(kStemChannels) {
    const Layout layout = layout_of(options.depth);
    stem_ = register_module(
        "conv1", cifar_stem_ ? convolution(kColours, kStemChannels, 3, 1) : convolution(kColours, kStemChannels, 7, 2));
    norm_ = register_module("bn1", std::make_shared<GroupedBatchNorm>(kStemChannels, options.groups));
    for (std::size_t index = 0; index < layout.blocks.size(); ++index) {
      const std::int64_t width = kStemChannels << index;
      const std::int64_t out = layout.bottleneck ? 4 * width : width;
      const auto stage = register_module("layer" + std::to_string(index + 1), std::make_shared<Stage>());
      for (std::int64_t block = 0; block < layout.blocks[index]; ++block) {
        const std::int64_t stride = index > 0 && block == 0 ? 2 : 1;
        stage->add(std::make_shared<Block>(BlockShape{feature_dim_, width, out, stride}, layout.bottleneck, options));
        feature_dim_ = out;
      }
      stages_.push_back(stage);
    }
  }

  at::Tensor forward(const at::Tensor& images) override {
    at::Tensor x = norm_->forward(convolve(*stem_, images.expand({-1, kColours, -1, -1}))).relu_();
    if (!cifar_stem_) x = at::max_pool2d(x, 3, 2, 1);
    for (const std::shared_ptr<Stage>& stage : stages_) x = run(stage, x);
    return at::adaptive_avg_pool2d(x, {1, 1}).flatten(1);
  }

  std::int64_t feature_dim() const override { return feature_dim_; }

 private:
  at::Tensor run(const std::shared_ptr<Stage>& stage, const at::Tensor& input) const {
    if (!checkpointing_) return stage->forward(input, Pass::kFirst);
    const Recomputable part = [stage](const at::Tensor& x, Pass pass) { return stage->forward(x, pass); };
    return checkpointed(part, input, stage->parameters());
  }

  bool cifar_stem_;
  bool checkpointing_;
  std::shared_ptr<Convolution> stem_;
  std::shared_ptr<GroupedBatchNorm> norm_;
  std::vector<std::shared_ptr<Stage>> stages_;
  std::int64_t feature_dim_;
};

}  // namespace

std::shared_ptr<Backbone> make_resnet(const ResNetOptions& options) { return std::make_shared<ResNet>(options); }

}  // namespace spillway::app
