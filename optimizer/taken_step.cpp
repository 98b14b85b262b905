// What is done with gradients once they are where they belong.
#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <optional>
#include <span>
#include <utility>

#include <ATen/autocast_mode.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/isfinite.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros_like.h>

#include <spillway/offload/error.hpp>
#include <spillway/optimizer/block_squares.hpp>
#include <spillway/optimizer/taken_gradients.hpp>

namespace spillway::optimizer {

using Kind = GradientTransform::Kind;

bool TakenGradients::holds_gradients() {
  for (std::size_t b = 0; b < plan_.buckets().size(); ++b) {
    for (const SumCell& cell : sums_.cells_of(b)) {
      if (std::any_of(cell.slots.begin(), cell.slots.end(), [](const SumSlot& slot) { return slot.has_gradient(); })) {
        return true;
      }
    }
  }
  return false;
}

// The mean over the ranks, then what was asked for.
std::vector<GradientTransform> TakenGradients::all_transforms() const {
  std::vector<GradientTransform> all;
  if (plan_.world_size() > 1) {
    all.push_back({Kind::kDivide, static_cast<double>(plan_.world_size())});
  }
  all.insert(all.end(), transforms_.begin(), transforms_.end());
  return all;
}

void TakenGradients::step(StreamedState& state) {
  fatal_ = true;  // Unless all of this ends well.
  const at::NoGradGuard no_grad;
  std::optional<std::string> failure;
  std::exception_ptr own_failure;
  const auto attempt = [&](const Work& work) {
    try {
      work();
    } catch (...) {
      own_failure = std::current_exception();
      failure = message_of(own_failure);
    }
  };
  std::vector<std::size_t> units;
  attempt([&] {
    units = state.units_with_gradient();
    state.begin_step(units);
  });
  const bool any = holds_gradients();
  for (std::size_t b = 0; b < plan_.buckets().size(); ++b) {
    BucketUpdate update;
    if (any && !failure) {
      attempt([&] { step_bucket(b, state, units, update); });
    }
    if (publisher_ != nullptr) {
      const std::vector<ShardPiece>& pieces = plan_.buckets()[b].pieces;
      update.updated.resize(static_cast<std::size_t>(std::count_if(
          pieces.begin(), pieces.end(), [&](const ShardPiece& piece) { return piece.owner == agreement_.rank(); })));
      update.failure = failure;
      lane_->submit([this, b, update = std::move(update)] { publisher_->run(b, update); });
    }
  }
  const std::exception_ptr lane_failure = wait_for_lane();
  if (own_failure != nullptr || lane_failure != nullptr) {
    std::rethrow_exception(own_failure != nullptr ? own_failure : lane_failure);
  }
  if (publisher_ != nullptr && publisher_->failure()) {
    throw Error(rank_failed(publisher_->failure()->rank, Purpose::kStep, publisher_->failure()->reason));
  }
  at::autocast::clear_cache();  // It has copies of the weights as they were.
  use_up();
  fatal_ = false;
}

void TakenGradients::step_bucket(std::size_t bucket, StreamedState& state, const std::vector<std::size_t>& units,
                                 BucketUpdate& update) {
  const std::vector<GradientTransform> transforms = all_transforms();
  const std::optional<GradientScale> scale = scale_of(transforms);
  sums_.visit(bucket, [&](const std::vector<GradientAccumulators::Sum>& sums) {
    std::map<std::size_t, const GradientAccumulators::Sum*> by_parameter;
    for (const GradientAccumulators::Sum& sum : sums) {
      if (sum.slot.has_gradient()) {
        by_parameter[sum.slot.parameter] = &sum;
      }
    }
    for (const ShardPiece& piece : plan_.buckets()[bucket].pieces) {
      if (piece.owner == agreement_.rank()) {
        update.updated.push_back(by_parameter.count(piece.parameter) != 0);
      }
    }
    for (const std::size_t u : units) {
      const std::vector<ParameterSlot>& slots = state.unit(u).group.slots;
      if (slots.front().part != bucket) {
        continue;
      }
      std::vector<at::Tensor> gradients;
      for (const ParameterSlot& slot : slots) {
        const auto found = by_parameter.find(*parameters_.find(slot.listed()));
        const bool as_it_is = slot.fused && scale;
        gradients.push_back(found == by_parameter.end() ? at::Tensor()
                            : as_it_is                  ? sum_of(*found->second)
                                                        : gradient_of(*found->second, slot, transforms));
      }
      state.step_unit(u, gradients, scale.value_or(GradientScale()));
    }
  });
}

// Kernels read the sum itself and transform it as they do, where they know the order of the transforms.
at::Tensor TakenGradients::sum_of(const GradientAccumulators::Sum& sum) {
  return sum.slot.content == SumContent::kZero ? at::zeros_like(sum.tensor, {}, at::MemoryFormat::Preserve)
                                               : sum.tensor;
}

// What `.grad` would be, of the parameter's type for LibTorch's step.
at::Tensor TakenGradients::gradient_of(const GradientAccumulators::Sum& sum, const ParameterSlot& slot,
                                       std::span<const GradientTransform> transforms) const {
  const at::Tensor gradient = transformed(sum_of(sum), transforms, parallel_);
  return slot.fused ? gradient : gradient.to(slot.parameter.options());
}

TakenGradients::Squares TakenGradients::measure() {
  const at::NoGradGuard no_grad;
  const std::vector<GradientTransform> transforms = all_transforms();
  Squares squares;
  if (!holds_gradients()) {
    return squares;
  }
  for (std::size_t b = 0; b < plan_.buckets().size(); ++b) {
    sums_.visit(b, [&](const std::vector<GradientAccumulators::Sum>& sums) {
      for (const GradientAccumulators::Sum& sum : sums) {
        if (sum.slot.has_gradient()) {
          std::vector<double> of_blocks;
          if (sum.slot.content == SumContent::kSum) {  // Else zeros.
            append_squares(sum.tensor, parallel_, of_blocks, transforms);
          }
          squares.rows.push_back(static_cast<double>(sum.slot.parameter));
          squares.rows.push_back(static_cast<double>(sum.slot.begin));
          squares.rows.push_back(static_cast<double>(of_blocks.size()));
          squares.rows.insert(squares.rows.end(), of_blocks.begin(), of_blocks.end());
          squares.finite = squares.finite && std::all_of(of_blocks.begin(), of_blocks.end(),
                                                         [](double square) { return std::isfinite(square); });
        }
      }
    });
  }
  return squares;
}

bool TakenGradients::unscale(double inverse_scale) {
  fatal_ = true;  // A rank that can't read its sums leaves the others without them.
  std::optional<Squares> before;
  const std::exception_ptr failure = failure_of([&] {
    // Products with a factor of at most 1 are finite where the gradients are; one pass is enough then.
    if (inverse_scale > 1.0) {
      before = measure();
    }
    transforms_.push_back({Kind::kMultiply, static_cast<double>(static_cast<float>(inverse_scale))});
    transformed_rounds_ = seen_rounds_;
    measured_ = measure();
  });
  const bool finite = failure == nullptr && (before ? before->finite : measured_->finite);
  const std::vector<RankNews> news = agreement_.meet(Purpose::kUnscale, {0, 0, finite ? 0 : 1}, failure);
  fatal_ = false;
  return std::any_of(news.begin(), news.end(), [](const RankNews& each) { return each.flag != 0; });
}

double TakenGradients::clip_norm(double max_norm) {
  if (!(max_norm > 0.0)) {
    throw ConfigError("gradients can't be clipped to a norm of " + std::to_string(max_norm) + "; wanted one above 0");
  }
  fatal_ = true;
  const std::exception_ptr failure = failure_of([&] {
    if (!measured_) {
      measured_ = measure();
    }
  });
  agreement_.meet(Purpose::kClip, {}, failure);
  // In the order of parameters and of their blocks, wherever they live.
  std::map<std::pair<double, double>, std::vector<double>> sums;
  for (const at::Tensor& rows : agreement_.gather(at::tensor(measured_->rows, at::kDouble))) {
    const auto* row = rows.const_data_ptr<double>();
    const auto* const end = row + rows.numel();
    while (row != end) {
      const auto count = static_cast<std::ptrdiff_t>(row[2]);
      sums[{row[0], row[1]}].assign(row + 3, row + 3 + count);
      row += 3 + count;
    }
  }
  fatal_ = false;
  double total = 0.0;
  for (const auto& [place, of_blocks] : sums) {
    total = std::accumulate(of_blocks.begin(), of_blocks.end(), total);
  }
  const double norm = std::sqrt(total);
  const double factor = max_norm / (norm + 1e-6);
  if (factor < 1.0 && std::isfinite(norm)) {
    transforms_.push_back({Kind::kMultiply, factor});
    transformed_rounds_ = seen_rounds_;
    measured_.reset();
  }
  return norm;
}

at::Tensor TakenGradients::find_non_finite() {
  const at::NoGradGuard no_grad;
  std::optional<std::size_t> first;
  for (std::size_t b = 0; holds_gradients() && b < plan_.buckets().size(); ++b) {
    sums_.visit(b, [&](const std::vector<GradientAccumulators::Sum>& sums) {
      for (const GradientAccumulators::Sum& sum : sums) {
        const bool earlier = !first || sum.slot.parameter < *first;
        if (earlier && sum.slot.content == SumContent::kSum && !at::isfinite(sum.tensor).all().item<bool>()) {
          first = sum.slot.parameter;
        }
      }
    });
  }
  return first ? parameters_[*first].tensor : at::Tensor();
}

void TakenGradients::clip_value(double limit) {
  if (!(limit >= 0.0)) {
    throw ConfigError("gradients can't be limited to " + std::to_string(limit) + "; wanted a limit of 0 or more");
  }
  transforms_.push_back({Kind::kLimit, limit});
  transformed_rounds_ = seen_rounds_;
  measured_.reset();
}

}  // namespace spillway::optimizer
