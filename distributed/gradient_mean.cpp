#include <spillway/distributed/gradient_mean.hpp>

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros.h>
#include <c10/core/ScalarType.h>

#include <spillway/distributed/collective.hpp>
#include <spillway/offload/error.hpp>

namespace spillway::distributed {
namespace {

constexpr std::int64_t kBucketBytesMax = std::int64_t{32} << 20U;

/// Parameters whose gradients travel together, in the caller's order.
struct Bucket {
  std::vector<at::Tensor> parameters;
  std::int64_t numel = 0;
};

void check_gradients(std::span<const at::Tensor> parameters) {
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const at::Tensor& gradient = parameters[i].grad();
    if (gradient.defined() && gradient.layout() != at::kStrided) {
      throw Error("average_gradients: the gradient of parameter " + std::to_string(i) +
                  " is sparse; make it dense (an embedding: sparse=false)");
    }
    if (gradient.defined() && gradient.scalar_type() != parameters[i].scalar_type()) {
      throw Error("average_gradients: the gradient of parameter " + std::to_string(i) + " is " +
                  c10::toString(gradient.scalar_type()) + ", the parameter " +
                  c10::toString(parameters[i].scalar_type()) + "; they must agree");
    }
  }
}

/// The parameters that have a gradient on some rank, in order.
std::vector<at::Tensor> with_gradient_anywhere(std::span<const at::Tensor> parameters, Collective& collective) {
  at::Tensor holders = at::zeros({static_cast<std::int64_t>(parameters.size())}, at::kLong);
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    holders.mutable_data_ptr<std::int64_t>()[i] = parameters[i].grad().defined() ? 1 : 0;
  }
  collective.all_reduce(holders, Reduction::Sum);
  std::vector<at::Tensor> result;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    if (holders.const_data_ptr<std::int64_t>()[i] > 0) {
      result.push_back(parameters[i]);
    }
  }
  return result;
}

void average(const Bucket& bucket, Collective& collective) {
  const auto& first = bucket.parameters.front();
  at::Tensor flat = at::zeros({bucket.numel}, first.options().device(at::kCPU).requires_grad(false));
  std::vector<at::Tensor> places;
  std::int64_t offset = 0;
  for (const at::Tensor& parameter : bucket.parameters) {
    at::Tensor& place = places.emplace_back(flat.narrow(0, offset, parameter.numel()).view(parameter.sizes()));
    offset += parameter.numel();
    if (parameter.grad().defined()) {
      place.copy_(parameter.grad());
    }
  }
  collective.all_reduce(flat, Reduction::Mean);
  for (std::size_t i = 0; i < places.size(); ++i) {
    at::Tensor& gradient = bucket.parameters[i].mutable_grad();
    if (!gradient.defined()) {
      gradient = at::empty_like(bucket.parameters[i].detach());
    }
    gradient.copy_(places[i]);
  }
}

}  // namespace

void average_gradients(std::span<const at::Tensor> parameters, Collective& collective) {
  check_gradients(parameters);
  if (parameters.empty() || collective.world_size() == 1) {
    return;
  }
  const at::NoGradGuard no_grad;
  // One open bucket for each dtype; all ranks see the same parameters, and so cut and send the same buckets.
  std::map<at::ScalarType, Bucket> open;
  for (const at::Tensor& parameter : with_gradient_anywhere(parameters, collective)) {
    Bucket& bucket = open[parameter.scalar_type()];
    const std::int64_t numel = bucket.numel + parameter.numel();
    if (bucket.numel > 0 && numel * parameter.element_size() > kBucketBytesMax) {
      average(std::exchange(bucket, Bucket{}), collective);
    }
    bucket.parameters.push_back(parameter);
    bucket.numel += parameter.numel();
  }
  for (const auto& [dtype, bucket] : open) {
    average(bucket, collective);
  }
}

}  // namespace spillway::distributed
