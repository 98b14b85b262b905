#pragma once

#include <memory>

#include <ATen/core/Tensor.h>

#include <spillway/app/config/config.hpp>
#include <spillway/app/data/counter_rng.hpp>
#include <spillway/app/encoders/encoder.hpp>
#include <spillway/app/methods/momentum_encoder.hpp>
#include <spillway/offload/tiers.hpp>
#include <spillway/queue/key_window.hpp>
#include <spillway/queue/negative_bank.hpp>

namespace spillway::app {

/// The bank that a configuration describes.
[[nodiscard]] queue::BankOptions bank_options(const Config& config);

/// MoCo v2 on one rank: the trained network, its momentum encoder and the bank of negatives. One window of gradient
/// accumulation goes
///     prefetch(); loss(...) and backward for each micro-batch; the optimizer's step; finish_window().
/// All micro-batches of a window meet the same bank; their keys enter it once, in the order of the micro-batches.
/// One caller at a time. Source: He et al. 2020; Chen et al. 2020, "Improved baselines with momentum contrast".
class Moco {
 public:
  /// Draws the network's weights from LibTorch's default generator. Allocates the bank at once.
  /// @throws what NegativeBank's constructor throws.
  Moco(const Config& config, ImageGeometry geometry, std::shared_ptr<offload::Tiers> tiers);

  /// What the optimizer trains.
  [[nodiscard]] ProjectedEncoder& network() noexcept { return network_; }
  [[nodiscard]] queue::NegativeBank& bank() noexcept { return bank_; }

  /// Starts to read what the next scan of the bank needs; returns at once.
  void prefetch() { window_.prefetch(); }
  /// Loss of one micro-batch, the mean over its rows, with the graph back to the network's parameters.
  /// @param queries, keys  [N, 1, H, W] float32: two views of the same N images.
  /// @param shuffle        Names the order in which the momentum encoder sees the keys; another for each micro-batch.
  /// @throws what info_nce throws.
  [[nodiscard]] at::Tensor loss(const at::Tensor& queries, const at::Tensor& keys, const StreamName& shuffle);
  /// After the optimizer's step: the momentum encoder follows, then the window's keys enter the bank. Neither happens
  /// where the step was skipped. @throws IoError.
  void finish_window(bool stepped = true);

 private:
  double temperature_;
  ProjectedEncoder network_;
  MomentumEncoder momentum_encoder_;
  queue::NegativeBank bank_;
  queue::KeyWindow window_;
};

}  // namespace spillway::app
