#include <spillway/app/methods/momentum_encoder.hpp>

#include <utility>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/argsort.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/index_select.h>

#include <spillway/offload/check.hpp>

namespace spillway::app {
namespace {

std::vector<at::Tensor> tensors(const std::vector<NamedTensor>& named) {
  std::vector<at::Tensor> list;
  for (const NamedTensor& entry : named) list.push_back(entry.tensor);
  return list;
}

void copy_all(const std::vector<at::Tensor>& to, const std::vector<at::Tensor>& from) {
  SPILLWAY_CHECK(to.size() == from.size(), "the two networks are of one configuration");
  for (std::size_t i = 0; i < to.size(); ++i) to[i].copy_(from[i]);
}

}  // namespace

at::Tensor shuffled_rows(std::int64_t rows, const StreamName& name) {
  at::Tensor order = at::empty({rows}, at::kLong);
  std::int64_t* row = order.mutable_data_ptr<std::int64_t>();
  CounterRng rng(name);
  for (std::int64_t i = 0; i < rows; ++i) {
    const std::int64_t place = rng.below(static_cast<std::uint32_t>(i + 1));
    row[i] = row[place];
    row[place] = i;
  }
  return order;
}

MomentumEncoder::MomentumEncoder(ProjectedEncoder network, const ProjectedEncoder& followed, double momentum)
    : network_(std::move(network)), average_(tensors(network_.parameters()), tensors(followed.parameters()), momentum) {
  const at::NoGradGuard no_grad;
  copy_all(tensors(network_.buffers()), tensors(followed.buffers()));
  network_.train(true);
  for (const NamedTensor& parameter : followed.parameters()) {
    places_.emplace(parameter.tensor.unsafeGetTensorImpl(), places_.size());
  }
}

void MomentumEncoder::follow(const at::Tensor& parameter, const at::Tensor& master) {
  const auto place = places_.find(parameter.unsafeGetTensorImpl());
  if (place != places_.end()) average_.follow(place->second, master);
}

std::vector<NamedTensor> MomentumEncoder::state() const {
  std::vector<NamedTensor> state = network_.parameters();
  for (std::size_t i = 0; i < state.size(); ++i) state[i].tensor = average_.masters()[i];
  for (NamedTensor& buffer : network_.buffers()) state.push_back(std::move(buffer));
  for (NamedTensor& tensor : state) tensor.name.insert(0, "momentum_encoder.");
  return state;
}

at::Tensor MomentumEncoder::encode(const at::Tensor& images) {
  const at::NoGradGuard no_grad;
  return network_.project(images);
}

at::Tensor MomentumEncoder::encode(const at::Tensor& images, const at::Tensor& shuffle) {
  const at::NoGradGuard no_grad;
  return encode(images.index_select(0, shuffle)).index_select(0, shuffle.argsort());
}

at::Tensor MomentumEncoder::encode(const at::Tensor& images, const queue::RankShuffle& shuffle) {
  const at::NoGradGuard no_grad;
  return shuffle.unshuffle(encode(shuffle.shuffle(images)));
}

}  // namespace spillway::app
