#pragma once

#include <cstdint>

namespace spillway::optimizer {

enum class LossScaleRule : std::uint8_t {
  kTorch,      ///< torch.amp.GradScaler: an overflow backs off at once, growth_interval good steps in a row grow.
  kDeepSpeed,  ///< DeepSpeed's `fp16` block: with hysteresis, and a window that counts from the last overflow.
};

struct LossScaleOptions {
  LossScaleRule rule = LossScaleRule::kTorch;
  double init_scale = 65536.0;
  double growth_factor = 2.0;
  double backoff_factor = 0.5;
  std::uint64_t growth_interval = 2000;  ///< DeepSpeed's loss_scale_window.
  double min_scale = 0.0;                ///< Never below; DeepSpeed's min_loss_scale is 1.
  unsigned hysteresis = 1;               ///< kDeepSpeed: overflows to bear before the scale is lowered.
  bool consecutive_hysteresis = false;   ///< kDeepSpeed: a good step restores the hysteresis.
  /// So many overflows in a row at min_scale are an error: nothing is learnt any more. 0: bear all.
  unsigned overflows_at_min_max = 0;
};

/// A dynamic loss scale: lowered when gradients overflow, raised when they have not for long. Plain values: a copy is
/// its state.
class LossScale {
 public:
  /// @throws ConfigError for factors, scales or intervals that make no sense, naming them.
  explicit LossScale(const LossScaleOptions& options = {});

  [[nodiscard]] double value() const noexcept { return value_; }
  /// Counts a step. @throws Error at the overflows_at_min_max-th overflow in a row at the smallest scale.
  void update(bool found_inf);

  /// What a checkpoint has to keep.
  struct State {
    double value = 0.0;
    std::uint64_t good_steps =
        0;  ///< Since the last overflow or growth (kTorch); since the last overflow (kDeepSpeed).
    unsigned hysteresis_left = 0;
    unsigned overflows_at_min = 0;
    friend bool operator==(const State&, const State&) = default;
  };
  [[nodiscard]] State state() const noexcept;
  /// @throws ConfigError for a scale that is not finite and positive.
  void restore(const State& state);

 private:
  void back_off();
  void update_as_torch(bool found_inf);
  void update_as_deepspeed(bool found_inf);

  LossScaleOptions options_;
  double value_;
  std::uint64_t good_steps_ = 0;
  unsigned hysteresis_left_;
  unsigned overflows_at_min_ = 0;
};

}  // namespace spillway::optimizer
