#include <limits>

#include <ATen/ops/amax.h>
#include <ATen/ops/full.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/zeros.h>

#include <spillway/queue/online_log_sum_exp.hpp>

namespace spillway::queue {

OnlineLogSumExp::OnlineLogSumExp(std::int64_t rows, at::ScalarType dtype)
    : maximum_(at::full({rows, 1}, -std::numeric_limits<double>::infinity(), at::TensorOptions(dtype))),
      sum_(at::zeros({rows, 1}, at::TensorOptions(dtype))),
      lowest_(dtype == at::kDouble ? std::numeric_limits<double>::lowest()
                                   : static_cast<double>(std::numeric_limits<float>::lowest())) {}

const at::Tensor& OnlineLogSumExp::fold(at::Tensor& logits) {
  const at::Tensor maximum = at::maximum(maximum_, at::amax(logits, 1, /*keepdim=*/true));
  const at::Tensor shift = maximum.clamp_min(lowest_);
  rescale_ = maximum_.sub_(shift).exp_();
  logits.sub_(shift).exp_();
  sum_.mul_(rescale_).add_(logits.sum(1, /*keepdim=*/true));
  maximum_ = maximum;
  return rescale_;
}

at::Tensor OnlineLogSumExp::value() const { return sum_.log().add_(maximum_); }

at::Tensor exact_softplus(const at::Tensor& x) { return x.clamp_min(0).add_(x.abs().neg_().exp_().log1p_()); }

}  // namespace spillway::queue
