#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include <ATen/core/Tensor.h>

#include <spillway/app/config/config.hpp>
#include <spillway/app/encoders/encoder.hpp>
#include <spillway/app/methods/momentum_encoder.hpp>
#include <spillway/app/methods/trained_temperature.hpp>
#include <spillway/app/methods/training_method.hpp>
#include <spillway/offload/tiers.hpp>
#include <spillway/queue/key_window.hpp>
#include <spillway/queue/length_schedule.hpp>
#include <spillway/queue/negative_bank.hpp>

namespace spillway::app {

/// The bank that a configuration describes, as long as it is at the first step.
[[nodiscard]] queue::BankOptions bank_options(const Config& config);
/// Its length at each step.
[[nodiscard]] queue::LengthSchedule bank_length(const Config& config);

/// MoCo v2 on one rank: the trained network, its momentum encoder and the bank of negatives. All micro-batches of a
/// window meet the same bank; their keys enter it once, in the order of the micro-batches.
/// Source: He et al. 2020; Chen et al. 2020, "Improved baselines with momentum contrast".
class Moco final : public TrainingMethod {
 public:
  /// Draws the network's weights from LibTorch's default generator. Allocates the bank at once.
  /// @throws what NegativeBank's constructor throws.
  Moco(const Config& config, ImageGeometry geometry, std::shared_ptr<offload::Tiers> tiers);

  [[nodiscard]] std::vector<NamedTensor> state() const override;
  void state_restored() override { momentum_encoder_.state_restored(); }
  [[nodiscard]] queue::NegativeBank* bank() noexcept override { return &bank_; }
  [[nodiscard]] std::vector<NamedTensor> parameters() const override;
  [[nodiscard]] std::vector<NamedTensor> undecayed_parameters() const override { return temperature_.parameters(); }
  [[nodiscard]] std::vector<NamedTensor> buffers() const override;
  void master_changed(const at::Tensor& parameter, const at::Tensor& master) override {
    momentum_encoder_.follow(parameter, master);
  }
  /// The bank gets the step's length, the momentum encoder its momentum.
  void begin_step(std::uint64_t step, std::uint64_t steps) override;
  void prefetch() override { window_.prefetch(); }
  /// View 0 makes the queries, view 1 the keys. @throws what info_nce throws.
  [[nodiscard]] at::Tensor loss(const ViewPair& batch) override;
  /// The momentum encoder follows, then the window's keys enter the bank. @throws IoError.
  void finish_window(bool stepped) override;

 private:
  TrainedTemperature temperature_;
  queue::LengthSchedule length_;
  ScheduledMomentum momentum_;
  bool exclude_same_class_;
  MomentumEncoder momentum_encoder_;
  queue::NegativeBank bank_;
  queue::KeyWindow window_;
};

}  // namespace spillway::app
