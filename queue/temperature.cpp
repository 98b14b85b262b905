#include <cmath>
#include <limits>
#include <sstream>
#include <utility>

#include <spillway/offload/error.hpp>
#include <spillway/queue/temperature.hpp>

namespace spillway::queue {

namespace {

bool is_number(const at::Tensor& tensor) {
  return tensor.defined() && tensor.numel() == 1 && tensor.is_floating_point() && tensor.device().is_cpu();
}

}  // namespace

Temperature::Temperature(at::Tensor value)
    : tensor_(std::move(value)),
      value_(is_number(tensor_) ? tensor_.item().toDouble() : std::numeric_limits<double>::quiet_NaN()) {}

void Temperature::check(const char* loss) const {
  if (value_ > 0.0 && std::isfinite(value_)) return;
  std::ostringstream message;
  message << loss << ": temperature is ";
  if (tensor_.defined() && !is_number(tensor_)) {
    message << tensor_.sizes() << " " << tensor_.dtype().name() << " on " << tensor_.device()
            << ", wanted one floating-point element on cpu";
  } else {
    message << value_ << ", wanted a finite value above 0";
  }
  throw ConfigError(message.str());
}

at::Tensor Temperature::gradient(const at::Tensor& d_log_scale) const {
  return d_log_scale.mul(-1.0 / value_).reshape(tensor_.sizes());
}

}  // namespace spillway::queue
