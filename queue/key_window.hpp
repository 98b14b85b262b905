#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include <ATen/core/Tensor.h>

#include <spillway/queue/streaming_loss.hpp>

namespace spillway::queue {

class NegativeBank;
class RankBank;

/// The keys of one window of gradient accumulation, and the rule when they enter the bank: all micro-batches of a
/// window see one version of the bank, their keys enter it once, after the optimizer's step, and not at all where the
/// step was skipped. A window goes
///     window.prefetch(); loss of a micro-batch, window.add(keys) and backward, for each; step();
///     window.finish(stepped).
/// Over ranks keys enter rank by rank, and micro-batch by micro-batch within a rank, so that as many ranks with as many
/// micro-batches each give the same bank. One caller at a time.
class KeyWindow {
 public:
  /// The bank outlives this.
  explicit KeyWindow(NegativeBank& bank);
  explicit KeyWindow(RankBank& bank);

  /// Starts to read the segments on disk that the next scan needs, before the encoders run; returns at once.
  void prefetch();
  /// Keys of the next micro-batch, with their labels if the bank has any. They are kept, not copied.
  /// @throws ConfigError where somebody else has changed the bank since the window began.
  void add(const at::Tensor& keys, const at::Tensor& labels = {});
  /// Ends the window. @param stepped  Whether the optimizer's step was made: false where an overflow made GradScaler
  /// skip it, on every rank alike. Keys of a skipped step are dropped, as a bank that they entered would be that of
  /// another encoder than the one which is trained.
  /// @throws ConfigError as add; what the bank's enqueue throws. The window is over in every case.
  void finish(bool stepped = true);

  /// Rows that wait for finish().
  [[nodiscard]] std::int64_t pending_rows() const;

 private:
  using Enqueue = std::function<void(const at::Tensor& keys, const at::Tensor& labels)>;
  void check_version();

  NegativeBank& local_;
  Enqueue enqueue_;
  std::vector<at::Tensor> keys_;
  std::vector<at::Tensor> labels_;
  std::uint64_t version_ = 0;  // Of the bank when the window began.
  bool open_ = false;
};

/// Queries and keys of one micro-batch.
struct MicroBatch {
  at::Tensor q;
  at::Tensor k;
  at::Tensor query_labels{};  ///< As InfoNceOptions; for all micro-batches or for none.
};

/// The losses of several micro-batches from one scan of the bank, for callers who have all embeddings of a window at
/// hand (cached accumulation): a bank on disk is read once for all of them. Each result is that of info_nce for its own
/// micro-batch, to rounding; d_log_scale as well. @throws as info_nce.
[[nodiscard]] std::vector<InfoNceResult> info_nce_of_window(std::span<const MicroBatch> micro_batches,
                                                            NegativeBank& bank, const Temperature& temperature,
                                                            const InfoNceOptions& options = {});

}  // namespace spillway::queue

namespace spillway {
using queue::info_nce_of_window;
using queue::KeyWindow;
using queue::MicroBatch;
}  // namespace spillway
