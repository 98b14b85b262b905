#pragma once

#include <vector>

#include <ATen/core/Tensor.h>

#include <spillway/app/config/config.hpp>
#include <spillway/app/methods/trained_temperature.hpp>
#include <spillway/app/methods/training_method.hpp>

namespace spillway::app {

/// SimCLR and SupCon: a micro-batch is its own negatives; with cached accumulation all of a window are. On several
/// ranks their micro-batches are one, through which gradients go. Both views go through the network together, so that a
/// batch-norm group holds rows of both. Source: Chen et al. 2020, sec. 2; Khosla et al. 2020, sec. 3.
class InBatch final : public TrainingMethod, public WindowLoss {
 public:
  /// @param config  Its method is kSimClr or kSupCon.
  /// @param ranks   Null: one. Outlives this.
  InBatch(const Config& config, ImageGeometry geometry, distributed::Collective* ranks = nullptr);

  [[nodiscard]] std::vector<NamedTensor> parameters() const override;
  [[nodiscard]] std::vector<NamedTensor> undecayed_parameters() const override { return temperature_.parameters(); }
  [[nodiscard]] WindowLoss* window_loss() noexcept override { return cached_ ? this : nullptr; }

  [[nodiscard]] bool compares_ranks() const noexcept override { return ranks_ != nullptr; }
  [[nodiscard]] std::vector<at::Tensor> embed(const ViewPair& batch) override;
  /// @throws what nt_xent and sup_con throw.
  [[nodiscard]] at::Tensor compare(const std::vector<at::Tensor>& views, const at::Tensor& labels) override;
  /// @throws what nt_xent and sup_con throw.
  [[nodiscard]] at::Tensor loss(const ViewPair& batch) override;
  void finish_window(bool stepped) override;

 private:
  bool by_label_;
  bool cached_;
  std::int64_t dim_;  // Of a projection.
  distributed::Collective* ranks_;
  TrainedTemperature temperature_;
};

}  // namespace spillway::app
