#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include <spillway/app/bench/memory_streams.hpp>
#include <spillway/optimizer/sharded_optimizer.hpp>

namespace spillway::app {

/// What an AdamW step is measured on.
struct AdamCase {
  std::uint64_t numel = 0;           ///< Of all tensors together.
  std::uint64_t tensors = 1;         ///< Of equal size.
  at::ScalarType type = at::kFloat;  ///< Of weights and gradients.
  optimizer::StateFormat state = optimizer::StateFormat::kFloat32;
  optimizer::MasterFormat masters = optimizer::MasterFormat::kNone;
  bool clips = false;  ///< The whole step: overflow check, norm, clip, update, cast of the weight.
};

/// Weights with gradients, the same values for every side: tensors of their own, as a model has them.
[[nodiscard]] std::vector<at::Tensor> bench_weights(const AdamCase& about);

/// Spillway: a wrapped AdamW, its state in host memory, from `.grad` to the published weight.
class WrappedAdamSide {
 public:
  explicit WrappedAdamSide(const AdamCase& about);
  void step();
  [[nodiscard]] const std::vector<at::Tensor>& weights() const noexcept { return weights_; }

 private:
  AdamCase about_;
  std::vector<at::Tensor> weights_;
  std::unique_ptr<optimizer::Optimizer> optimizer_;
};

/// LibTorch's fused AdamW for the CPU (`at::_fused_adamw_`) on lists of tensors that are made once; the whole step pass
/// by pass: gradients to float32, norm, clip, update, weights to 16 bits.
class TorchAdamSide {
 public:
  /// Why it can't do this; empty where it can: its tensors have one type.
  [[nodiscard]] static std::string unavailable(const AdamCase& about);
  explicit TorchAdamSide(const AdamCase& about);
  void step();
  [[nodiscard]] const std::vector<at::Tensor>& weights() const noexcept { return weights_; }

 private:
  AdamCase about_;
  std::vector<at::Tensor> weights_, masters_, gradients_, exp_avgs_, exp_avg_sqs_, steps_;
};

/// The machine's own bound: a loop over as many bytes as the update reads and rewrites, in as many streams.
[[nodiscard]] MemoryStreams bench_streams(const AdamCase& about);

}  // namespace spillway::app
