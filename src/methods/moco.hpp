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
#include <spillway/queue/rank_bank.hpp>

namespace spillway::app {

/// The bank that a configuration describes, as long as it is at the first step.
[[nodiscard]] queue::BankOptions bank_options(const Config& config);
/// Its length at each step.
[[nodiscard]] queue::LengthSchedule bank_length(const Config& config);

/// MoCo v2: the trained network, its momentum encoder and the bank of negatives. All micro-batches of a window meet the
/// same bank; their keys enter it once, in the order of the micro-batches. On several ranks each has the keys of all in
/// its bank, in rank order, and encodes keys of one another's, for the sake of batch-norms (He et al. 2020, sec. 3.3).
/// Source: He et al. 2020; Chen et al. 2020, "Improved baselines with momentum contrast".
class Moco final : public TrainingMethod {
 public:
  /// Draws the network's weights from LibTorch's default generator. Allocates the bank at once.
  /// @param ranks  Null: one. Outlives this. @throws what the bank's constructor throws.
  Moco(const Config& config, ImageGeometry geometry, std::shared_ptr<offload::Tiers> tiers,
       distributed::Collective* ranks = nullptr);

  [[nodiscard]] std::vector<NamedTensor> state() const override;
  void state_restored() override { momentum_encoder_.state_restored(); }
  [[nodiscard]] queue::NegativeBank* bank() noexcept override { return own_ ? own_.get() : &shared_->local(); }
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
  distributed::Collective* ranks_;
  std::unique_ptr<queue::RankBank> shared_;   // Null on one rank,
  std::unique_ptr<queue::NegativeBank> own_;  // and this on several.
  queue::KeyWindow window_;
};

}  // namespace spillway::app
