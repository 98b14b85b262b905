#include <cmath>
#include <limits>
#include <sstream>
#include <string>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/zeros.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/csrc/autograd/functions/basic_ops.h>

#include <spillway/offload/error.hpp>
#include <spillway/queue/negative_bank.hpp>
#include <spillway/queue/online_log_sum_exp.hpp>
#include <spillway/queue/streaming_loss.hpp>

namespace spillway::queue {

namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr char kNoSecondDerivative[] =
    "info_nce has no second derivative: its gradient is computed while the bank streams, and can't be differentiated "
    "again; call backward without create_graph";

struct Computed {
  at::Tensor rows, lse, d_q, d_log_scale;
};

/// What the negatives alone add up to: their log-sum-exp [N, 1] and their mean under softmax weights [N, D].
struct Negatives {
  at::Tensor lse, mean;
};

Negatives stream_negatives(const at::Tensor& q, NegativeBank& bank, double temperature, const at::Tensor& labels) {
  const std::int64_t n = q.size(0);
  OnlineLogSumExp state(n, q.scalar_type());
  at::Tensor weighted = at::zeros(q.sizes(), q.options());
  const at::Tensor buffer = at::empty({n * kTileRows}, q.options());
  constexpr double kMasked = -std::numeric_limits<double>::infinity();
  bank.scan(q.scalar_type(), [&](const BankTile& tile) {
    const std::int64_t rows = tile.rows.size(0);
    at::Tensor logits = buffer.narrow(0, 0, n * rows).view({n, rows});
    at::addmm_out(logits, logits, q, tile.rows.t(), /*beta=*/0, /*alpha=*/1.0 / temperature);
    if (labels.defined()) logits.masked_fill_(labels.unsqueeze(1).eq(tile.labels), kMasked);
    weighted.mul_(state.fold(logits));
    at::addmm_out(weighted, weighted, logits, tile.rows);
  });
  // Where a query has no negative at all the mean is that of nothing: it must be finite, as it gets no weight.
  const at::Tensor sum = state.sum().masked_fill(state.sum().eq(0), 1);
  return {state.value(), weighted.div_(sum)};
}

/// With l+ the positive logit and L the log-sum-exp of the negatives, -log p(positive) = softplus(L - l+) and
/// 1 - p(positive) = sigmoid(L - l+). Unlike with the positive folded into the sum, nothing cancels where it dominates.
Computed compute(const at::Tensor& q, const at::Tensor& k, NegativeBank& bank, double temperature,
                 const at::Tensor& labels) {
  const std::int64_t n = q.size(0);
  const at::Tensor positive = q.mul(k).sum(1, /*keepdim=*/true).mul_(1.0 / temperature);
  if (bank.size() == 0 || n == 0) {
    return {at::zeros({n}, q.options()), positive.squeeze(1), at::zeros(q.sizes(), q.options()),
            at::zeros({}, q.options())};
  }
  const auto [lse, mean] = stream_negatives(q, bank, temperature, labels);
  const at::Tensor margin = lse.sub(positive);
  // softplus(x) = max(x, 0) + log1p(exp(-|x|)); at::softplus turns into the identity above a threshold.
  const at::Tensor rows = margin.clamp_min(0).add_(margin.abs().neg_().exp_().log1p_());
  const at::Tensor d_q = mean.sub(k).mul_(at::sigmoid(margin)).mul_(1.0 / (temperature * static_cast<double>(n)));
  return {rows.squeeze(1), positive.add(rows).squeeze(1), d_q, q.mul(d_q).sum()};
}

class InfoNce : public torch::autograd::Function<InfoNce> {
 public:
  static variable_list forward(AutogradContext* context, const at::Tensor& q, const at::Tensor& k, NegativeBank* bank,
                               double temperature, const InfoNceOptions* options) {
    // Autocast would make half-precision logits of it.
    const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
    const at::ScalarType dtype = q.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
    const Computed result =
        compute(q.to(dtype).contiguous(), k.to(dtype).contiguous(), *bank, temperature, options->query_labels);
    context->save_for_backward({result.d_q});
    context->saved_data["dtype"] = static_cast<std::int64_t>(q.scalar_type());
    context->mark_non_differentiable({result.rows, result.lse, result.d_log_scale});
    const at::Tensor loss = q.size(0) == 0 ? at::zeros({}, result.rows.options()) : result.rows.mean();
    return {loss, result.rows, result.lse, result.d_log_scale};
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const at::Tensor d_q = context->get_saved_variables().at(0);
    const auto dtype = static_cast<at::ScalarType>(context->saved_data["dtype"].toInt());
    variable_list result{gradients.at(0).mul(d_q).to(dtype)};
    if (at::GradMode::is_enabled()) {
      // The gradient was computed in forward, so that autograd sees none of its dependence on q: whoever
      // differentiates it must not get an answer.
      torch::autograd::DelayedError refuse(kNoSecondDerivative, 1);
      result = refuse({result.front().detach().requires_grad_()});
    }
    result.resize(5);  // None for k, the bank, the temperature and the options.
    return result;
  }
};

void check_inputs(const at::Tensor& q, const at::Tensor& k, const NegativeBank& bank, double temperature) {
  if (!(temperature > 0.0) || !std::isfinite(temperature)) {
    throw ConfigError("info_nce: temperature is " + std::to_string(temperature) + ", wanted a finite value above 0");
  }
  const auto check = [&](const char* name, const at::Tensor& tensor, std::int64_t rows) {
    const bool fits = tensor.defined() && tensor.dim() == 2 && tensor.size(0) == rows && tensor.size(1) == bank.dim() &&
                      tensor.is_floating_point() && tensor.device().is_cpu();
    if (fits) return;
    std::ostringstream message;
    message << "info_nce: " << name << " is ";
    if (tensor.defined()) {
      message << tensor.sizes() << " " << tensor.dtype().name() << " on " << tensor.device();
    } else {
      message << "undefined";
    }
    message << ", wanted [" << rows << ", " << bank.dim() << "] of a floating-point dtype on cpu: queries and keys "
            << "have one row each per sample and the bank's dimension";
    throw ConfigError(message.str());
  };
  check("q", q, q.defined() && q.dim() > 0 ? q.size(0) : 0);
  check("k", k, q.size(0));
  if (k.requires_grad()) {
    throw ConfigError(
        "info_nce: k requires a gradient, and would get none: compute the keys without gradient or "
        "detach them");
  }
}

void check_labels(const at::Tensor& labels, std::int64_t rows, const NegativeBank& bank) {
  if (!labels.defined()) return;
  if (!bank.has_labels()) {
    throw ConfigError(
        "info_nce: query_labels were given, and the bank keeps no labels to compare them with: set "
        "BankOptions::labels and enqueue keys with theirs");
  }
  if (labels.dim() == 1 && labels.size(0) == rows && labels.scalar_type() == at::kLong && labels.device().is_cpu()) {
    return;
  }
  std::ostringstream message;
  message << "info_nce: query_labels is " << labels.sizes() << " " << labels.dtype().name() << " on " << labels.device()
          << ", wanted [" << rows << "] int64 on cpu: one label for each query";
  throw ConfigError(message.str());
}

}  // namespace

InfoNceResult info_nce(const at::Tensor& q, const at::Tensor& k, NegativeBank& bank, double temperature,
                       const InfoNceOptions& options) {
  check_inputs(q, k, bank, temperature);
  check_labels(options.query_labels, q.size(0), bank);
  variable_list outputs = InfoNce::apply(q, k, &bank, temperature, &options);
  return {std::move(outputs[0]), std::move(outputs[1]), std::move(outputs[2]), std::move(outputs[3])};
}

}  // namespace spillway::queue
