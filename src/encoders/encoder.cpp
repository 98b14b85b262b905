#include <spillway/app/encoders/encoder.hpp>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/ops/adaptive_avg_pool2d.h>
#include <ATen/ops/max_pool2d.h>
#include <ATen/ops/relu.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>

#include <spillway/app/encoders/backbone.hpp>
#include <spillway/app/encoders/grouped_batch_norm.hpp>
#include <spillway/app/encoders/heads.hpp>
#include <spillway/app/encoders/layer_input.hpp>
#include <spillway/app/encoders/resnet.hpp>

namespace spillway::app {
namespace {

constexpr std::int64_t kRegions = 2;  // A side; features are averages over 2 x 2 regions.

constexpr std::int64_t kSmallSide = 64;  // Up to here images keep their size in a ResNet's stem.

std::int64_t signed_of(std::uint64_t value) { return static_cast<std::int64_t>(value); }

class SmallCnn final : public Backbone {
 public:
  SmallCnn(std::int64_t colours, const std::vector<std::uint64_t>& channels, std::int64_t groups) {
    std::int64_t in = colours;
    for (const std::uint64_t channel_count : channels) {
      const std::int64_t out = signed_of(channel_count);
      const std::string number = std::to_string(convolutions_.size() + 1);
      // The batch-norm that follows has a bias of its own.
      const auto options = torch::nn::Conv2dOptions(in, out, 3).padding(1).bias(false);
      convolutions_.push_back(register_module("conv" + number, std::make_shared<torch::nn::Conv2dImpl>(options)));
      norms_.push_back(register_module("bn" + number, std::make_shared<GroupedBatchNorm>(out, groups)));
      in = out;
    }
    feature_dim_ = in * kRegions * kRegions;
  }

  at::Tensor forward(const at::Tensor& images) override {
    at::Tensor x = images;
    for (std::size_t layer = 0; layer < convolutions_.size(); ++layer) {
      const at::Tensor convolved = convolutions_[layer]->forward(input_of(convolutions_[layer]->weight, x));
      x = at::relu(norms_[layer]->forward(convolved));
      if (std::min(x.size(2), x.size(3)) >= 2 * kRegions) {
        x = at::max_pool2d(x, 2);
      }
    }
    return at::adaptive_avg_pool2d(x, {kRegions, kRegions}).flatten(1);
  }

  std::int64_t feature_dim() const override { return feature_dim_; }

 private:
  std::vector<std::shared_ptr<torch::nn::Conv2dImpl>> convolutions_;
  std::vector<std::shared_ptr<GroupedBatchNorm>> norms_;
  std::int64_t feature_dim_ = 0;
};

class Mlp final : public Backbone {
 public:
  Mlp(std::int64_t pixels, const std::vector<std::uint64_t>& hidden, std::int64_t groups) : feature_dim_(pixels) {
    for (const std::uint64_t width : hidden) {
      const std::int64_t out = signed_of(width);
      const std::string number = std::to_string(layers_.size() + 1);
      const auto options = torch::nn::LinearOptions(feature_dim_, out).bias(false);
      layers_.push_back(register_module("fc" + number, std::make_shared<torch::nn::LinearImpl>(options)));
      norms_.push_back(register_module("bn" + number, std::make_shared<GroupedBatchNorm>(out, groups)));
      feature_dim_ = out;
    }
  }

  at::Tensor forward(const at::Tensor& images) override {
    at::Tensor x = images.flatten(1);
    for (std::size_t layer = 0; layer < layers_.size(); ++layer) {
      x = at::relu(norms_[layer]->forward(layers_[layer]->forward(input_of(layers_[layer]->weight, x))));
    }
    return x;
  }

  std::int64_t feature_dim() const override { return feature_dim_; }

 private:
  std::vector<std::shared_ptr<torch::nn::LinearImpl>> layers_;
  std::vector<std::shared_ptr<GroupedBatchNorm>> norms_;
  std::int64_t feature_dim_ = 0;
};

ResNetOptions resnet_options(const EncoderConfig& config, ImageGeometry geometry, std::int64_t groups) {
  const bool small = std::max(geometry.width, geometry.height) <= kSmallSide;
  ResNetOptions options;
  options.depth = config.kind == EncoderKind::kResNet18 ? 18 : config.kind == EncoderKind::kResNet34 ? 34 : 50;
  options.cifar_stem = config.stem == EncoderStem::kAuto ? small : config.stem == EncoderStem::kCifar;
  options.zero_init_residual = config.zero_init_residual;
  options.checkpointing = config.checkpointing;
  options.groups = groups;
  return options;
}

std::shared_ptr<Backbone> make_backbone(const EncoderConfig& config, ImageGeometry geometry, std::int64_t groups) {
  switch (config.kind) {
    case EncoderKind::kMlp:
      return std::make_shared<Mlp>(geometry.channels * geometry.width * geometry.height, config.hidden, groups);
    case EncoderKind::kSmallCnn:
      break;
    case EncoderKind::kResNet18:
    case EncoderKind::kResNet34:
    case EncoderKind::kResNet50:
      return make_resnet(resnet_options(config, geometry, groups));
  }
  return std::make_shared<SmallCnn>(geometry.channels, config.channels, groups);
}

template <typename Dict>
std::vector<NamedTensor> listed(const Dict& dict) {
  std::vector<NamedTensor> list;
  for (const auto& item : dict) {
    list.push_back({item.key(), item.value()});
  }
  return list;
}

}  // namespace

class ProjectedEncoder::Network final : public torch::nn::Module {
 public:
  Network(std::shared_ptr<Backbone> made_encoder, const ContrastiveConfig& contrastive)
      : encoder(register_module("encoder", std::move(made_encoder))),
        head(register_module("head",
                             std::make_shared<Head>(contrastive.projection_head,
                                                    HeadShape{.in = encoder->feature_dim(),
                                                              .hidden = signed_of(contrastive.projection_hidden_dim),
                                                              .out = signed_of(contrastive.projection_dim),
                                                              .groups = signed_of(contrastive.batch_norm_groups)}))) {}

  std::shared_ptr<Backbone> encoder;
  std::shared_ptr<Head> head;
};

ProjectedEncoder::ProjectedEncoder(const EncoderConfig& encoder, const ContrastiveConfig& contrastive,
                                   ImageGeometry geometry)
    : network_(std::make_shared<Network>(make_backbone(encoder, geometry, signed_of(contrastive.batch_norm_groups)),
                                         contrastive)) {}
ProjectedEncoder::ProjectedEncoder(ProjectedEncoder&&) noexcept = default;
ProjectedEncoder& ProjectedEncoder::operator=(ProjectedEncoder&&) noexcept = default;
ProjectedEncoder::~ProjectedEncoder() = default;

at::Tensor ProjectedEncoder::projection(const at::Tensor& images) {
  return network_->head->forward(network_->encoder->forward(images)).to(at::kFloat);
}

at::Tensor ProjectedEncoder::project(const at::Tensor& images) {
  const at::Tensor projected = projection(images);
  // The floor keeps a row of zeros at zero, with a finite gradient.
  return projected / projected.norm(2, 1, true).clamp_min(1e-12);
}

at::Tensor ProjectedEncoder::features(const at::Tensor& images) {
  return network_->encoder->forward(images).to(at::kFloat);
}

std::int64_t ProjectedEncoder::feature_dim() const noexcept { return network_->encoder->feature_dim(); }

void ProjectedEncoder::train(bool on) { network_->train(on); }

std::vector<NamedTensor> ProjectedEncoder::parameters() const { return listed(network_->named_parameters()); }

std::vector<NamedTensor> ProjectedEncoder::buffers() const { return listed(network_->named_buffers()); }

}  // namespace spillway::app
