#pragma once

#include <cstdint>
#include <limits>
#include <optional>

#include <ATen/core/Tensor.h>

#include <spillway/queue/temperature.hpp>

namespace spillway::distributed {
class Collective;
}

namespace spillway::queue {

// Contrastive losses within a batch, whose keys carry gradients. What holds for all of them:
//
// - Rows are used as they are, without normalisation; logits are dot products over the temperature.
// - Two passes in tiles of a fixed size: forward keeps a few numbers a row, backward computes the logits again. Nothing
//   of size N × N exists. Logits and sums are float32 whatever the inputs' dtype (float64 for float64), also under
//   autocast; gradients come back in the inputs' dtypes, to the temperature too where it requires one.
// - An anchor without positives counts as 0 in the mean, with gradient 0; so does a batch without rows.
// - With `ranks` the rows of all ranks are gathered, so that each rank's anchors meet the whole batch. Numbers of rows
//   may differ between ranks and be 0. The mean over the ranks of `loss`, and of its gradients (what
//   distributed::average_gradients makes), is that of one process on the whole batch. Forward and backward are
//   collectives: all ranks run them, and the features require a gradient on all ranks or on none. `ranks` outlives the
//   graph.
// - There is no second derivative: differentiating the gradient again throws and says so.
// - @throws ConfigError (shapes, dtypes, devices, labels, temperatures: names wanted and got), with `ranks` what
//   Collective throws.

struct ContrastiveResult {
  at::Tensor loss;  ///< Scalar, the only part that carries a gradient.
  at::Tensor rows;  ///< The loss of each anchor of this rank, those of view 0 first.
};

/// SimCLR's NT-Xent: each row is an anchor, the other view of its sample its positive, all other rows its negatives;
/// the mean over all 2 N anchors (google-research/simclr reports twice that).
/// @param view0, view1  [N, D], floating point, on the CPU: two views of the same N samples.
/// Source: Chen et al. 2020, eq. 1.
[[nodiscard]] ContrastiveResult nt_xent(const at::Tensor& view0, const at::Tensor& view1,
                                        const Temperature& temperature, distributed::Collective* ranks = nullptr);

/// The decoupled contrastive loss: NT-Xent without the positive in the denominator; it can be negative.
/// @param view0, view1  as for nt_xent.  Source: Yeh et al. 2022, eq. 6.
[[nodiscard]] ContrastiveResult decoupled_contrastive(const at::Tensor& view0, const at::Tensor& view1,
                                                      const Temperature& temperature,
                                                      distributed::Collective* ranks = nullptr);

struct SupConOptions {
  enum class Form : std::uint8_t {
    kOut,  ///< The mean over the positives of -log p: L_out, eq. 2.
    kIn,   ///< -log of the mean of p over the positives: L_in, eq. 3.
  };
  enum class Anchors : std::uint8_t { kAllViews, kFirstView };
  enum class Mean : std::uint8_t {
    kAllAnchors,            ///< As in the authors' code.
    kAnchorsWithPositives,  ///< Leaves those without out of the count.
  };
  Form form = Form::kOut;
  Anchors anchors = Anchors::kAllViews;
  Mean mean = Mean::kAllAnchors;
  /// The loss is multiplied by temperature / base_temperature. Not given: by 1.
  std::optional<double> base_temperature{};
  distributed::Collective* ranks = nullptr;
};

/// Supervised contrastive loss: the positives of an anchor are all other rows of its label, in any view.
/// @param features  [N, V, D], floating point, on the CPU: V views of N samples.
/// @param labels    [N] int64 on the CPU; undefined: each sample is a class of its own (SimCLR, for V = 2).
/// Source: Khosla et al. 2020, eq. 2 and 3.
[[nodiscard]] ContrastiveResult sup_con(const at::Tensor& features, const at::Tensor& labels,
                                        const Temperature& temperature, const SupConOptions& options = {});

struct ClipOptions {
  /// The scale is exp(log_scale), but never more than this. A log_scale beyond it keeps a gradient that lowers it, and
  /// gets none that would raise it further. CLIP itself takes 100.
  double scale_max = std::numeric_limits<double>::infinity();
  distributed::Collective* ranks = nullptr;
};

/// The symmetric loss of CLIP: the mean of two InfoNCE losses, each image among all texts and each text among all
/// images; image i and text i belong together.
/// @param images, texts  [N, D], floating point, on the CPU.
/// @param log_scale      One floating-point element on the CPU: the logarithm of what dot products are multiplied by.
/// Source: Radford et al. 2021, fig. 3.
[[nodiscard]] ContrastiveResult clip_loss(const at::Tensor& images, const at::Tensor& texts,
                                          const at::Tensor& log_scale, const ClipOptions& options = {});

}  // namespace spillway::queue

namespace spillway {
using queue::clip_loss;
using queue::ClipOptions;
using queue::ContrastiveResult;
using queue::decoupled_contrastive;
using queue::nt_xent;
using queue::sup_con;
using queue::SupConOptions;
}  // namespace spillway
