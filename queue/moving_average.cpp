#include <cmath>
#include <numbers>
#include <string>
#include <utility>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/_foreach_lerp.h>

#include <spillway/offload/check.hpp>
#include <spillway/offload/error.hpp>
#include <spillway/queue/loss_arguments.hpp>
#include <spillway/queue/moving_average.hpp>

namespace spillway::queue {

namespace {

void check_match(const at::Tensor& own, const at::Tensor& other, std::size_t index) {
  if (own.defined() && other.defined() && own.is_floating_point() && other.is_floating_point() &&
      own.sizes() == other.sizes() && own.device() == other.device()) {
    return;
  }
  throw ConfigError("moving average: tensor " + std::to_string(index) + " is " + tensor_text(own) + ", it follows " +
                    tensor_text(other) +
                    ": both have to be floating point, of one shape and on one device; give the parameters of both "
                    "networks in one order");
}

void check_match(std::span<const at::Tensor> average, std::span<const at::Tensor> followed) {
  if (average.size() != followed.size()) {
    throw ConfigError("moving average: " + std::to_string(followed.size()) + " tensors to follow for " +
                      std::to_string(average.size()) +
                      " of the average; give the parameters of both networks, in one order");
  }
  for (std::size_t i = 0; i < average.size(); ++i) check_match(average[i], followed[i], i);
}

}  // namespace

MovingAverage::MovingAverage(std::vector<at::Tensor> average, std::vector<at::Tensor> followed, double momentum)
    : average_(std::move(average)), followed_(std::move(followed)), momentum_(0) {
  set_momentum(momentum);
  check_match(average_, followed_);
  ahead_.resize(average_.size());
  const at::NoGradGuard no_grad;
  for (std::size_t i = 0; i < average_.size(); ++i) {
    average_[i].set_requires_grad(false);
    average_[i].copy_(followed_[i]);
    // A 16-bit average starts from the followed values, which may be wider than it is: from a copy, as it will move.
    const at::ScalarType wide = compute_dtype(average_[i].scalar_type());
    masters_.push_back(average_[i].scalar_type() == wide
                           ? average_[i]
                           : followed_[i].detach().to(wide, /*non_blocking=*/false, /*copy=*/true));
  }
}

void MovingAverage::set_momentum(double momentum) {
  if (!(momentum >= 0.0 && momentum <= 1.0)) {
    throw ConfigError("moving average: momentum is " + std::to_string(momentum) + ", wanted 0 to 1");
  }
  momentum_ = momentum;
}

void MovingAverage::follow(std::span<const at::Tensor> masters) {
  check_match(average_, masters);
  const at::NoGradGuard no_grad;
  std::vector<at::Tensor> wide;
  for (std::size_t i = 0; i < masters_.size(); ++i) wide.push_back(masters[i].to(masters_[i].scalar_type()));
  at::_foreach_lerp_(masters_, wide, 1.0 - momentum_);
  publish();
}

void MovingAverage::follow() {
  const at::NoGradGuard no_grad;
  std::vector<at::Tensor> own;
  std::vector<at::Tensor> wide;
  for (std::size_t i = 0; i < masters_.size(); ++i) {
    if (ahead_[i]) continue;
    own.push_back(masters_[i]);
    wide.push_back(followed_[i].to(masters_[i].scalar_type()));
  }
  if (!own.empty()) at::_foreach_lerp_(own, wide, 1.0 - momentum_);
  for (std::size_t i = 0; i < masters_.size(); ++i) {
    if (!ahead_[i]) publish(i);
    ahead_[i] = false;
  }
}

void MovingAverage::follow(std::size_t index, const at::Tensor& master) {
  SPILLWAY_CHECK(index < average_.size() && !ahead_[index], "a tensor makes one step between two of all");
  check_match(average_[index], master, index);
  const at::NoGradGuard no_grad;
  const std::vector<at::Tensor> own{masters_[index]};
  at::_foreach_lerp_(own, std::vector<at::Tensor>{master.to(own.front().scalar_type())}, 1.0 - momentum_);
  publish(index);
  ahead_[index] = true;
}

void MovingAverage::publish() {
  for (std::size_t i = 0; i < masters_.size(); ++i) publish(i);
}

void MovingAverage::publish(std::size_t index) {
  const at::NoGradGuard no_grad;
  if (!masters_[index].is_same(average_[index])) average_[index].copy_(masters_[index]);
}

double byol_momentum(double base, std::uint64_t step, std::uint64_t steps) {
  const double part = static_cast<double>(step) / static_cast<double>(steps);
  return 1.0 - (1.0 - base) * (std::cos(std::numbers::pi * part) + 1.0) / 2.0;
}

}  // namespace spillway::queue
