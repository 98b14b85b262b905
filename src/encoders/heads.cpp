#include <spillway/app/encoders/heads.hpp>

#include <ATen/ops/relu.h>

#include <spillway/app/encoders/layer_input.hpp>

namespace spillway::app {

Head::Head(HeadKind kind, const HeadShape& shape) {
  const bool inside = kind != HeadKind::kMlp;
  const bool at_end = kind == HeadKind::kBatchNormOutput;
  const auto linear = [](std::int64_t in, std::int64_t out, bool bias) {
    return std::make_shared<torch::nn::LinearImpl>(torch::nn::LinearOptions(in, out).bias(bias));
  };
  fc1_ = register_module("fc1", linear(shape.in, shape.hidden, !inside));
  if (inside) bn1_ = register_module("bn1", std::make_shared<GroupedBatchNorm>(shape.hidden, shape.groups));
  fc2_ = register_module("fc2", linear(shape.hidden, shape.out, !at_end));
  if (at_end) bn2_ = register_module("bn2", std::make_shared<GroupedBatchNorm>(shape.out, shape.groups));
}

at::Tensor Head::forward(const at::Tensor& rows) {
  const at::Tensor hidden = fc1_->forward(input_of(fc1_->weight, rows));
  const at::Tensor active = at::relu(bn1_ ? bn1_->forward(hidden) : hidden);
  const at::Tensor out = fc2_->forward(input_of(fc2_->weight, active));
  return bn2_ ? bn2_->forward(out) : out;
}

}  // namespace spillway::app
