#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include <ATen/core/Tensor.h>

#include <spillway/app/config/config.hpp>
#include <spillway/app/encoders/predictor.hpp>
#include <spillway/app/methods/momentum_encoder.hpp>
#include <spillway/app/methods/training_method.hpp>

namespace spillway::app {

/// BYOL and SimSiam: a predictor on top of the projection of one view is to find the projection of the other, which is
/// a constant: BYOL's comes from a momentum encoder, SimSiam's from the network itself. There are no negatives.
/// Source: Grill et al. 2020, sec. 3.1; Chen & He 2021, sec. 3.
class Predictive final : public TrainingMethod {
 public:
  /// @param config  Its method is kByol or kSimSiam.
  Predictive(const Config& config, ImageGeometry geometry);

  [[nodiscard]] std::vector<NamedTensor> parameters() const override;
  [[nodiscard]] std::vector<NamedTensor> buffers() const override;
  void master_changed(const at::Tensor& parameter, const at::Tensor& master) override;
  void begin_step(std::uint64_t step, std::uint64_t steps) override;
  [[nodiscard]] std::vector<NamedTensor> state() const override;
  void state_restored() override;
  /// The mean over both directions. @throws what byol_loss and simsiam_loss throw.
  [[nodiscard]] at::Tensor loss(const ViewPair& batch) override;
  /// BYOL's target follows.
  void finish_window(bool stepped) override;

 private:
  Predictor predictor_;
  ScheduledMomentum momentum_;
  std::optional<MomentumEncoder> target_;
};

}  // namespace spillway::app
