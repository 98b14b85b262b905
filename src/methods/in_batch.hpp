#pragma once

#include <ATen/core/Tensor.h>

#include <spillway/app/config/config.hpp>
#include <spillway/app/methods/training_method.hpp>

namespace spillway::app {

/// SimCLR and SupCon: a micro-batch is its own negatives. Both views go through the network together, so that a
/// batch-norm group holds rows of both. Source: Chen et al. 2020, sec. 2; Khosla et al. 2020, sec. 3.
class InBatch final : public TrainingMethod {
 public:
  /// @param config  Its method is kSimClr or kSupCon.
  InBatch(const Config& config, ImageGeometry geometry);

  /// @throws what nt_xent and sup_con throw.
  [[nodiscard]] at::Tensor loss(const ViewPair& batch) override;

 private:
  bool by_label_;
  double temperature_;
};

}  // namespace spillway::app
