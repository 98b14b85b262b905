#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace at {
class Tensor;
}

namespace spillway::distributed {

enum class Reduction : std::uint8_t {
  Sum,   ///< Any dtype but bool.
  Mean,  ///< The sum divided by the number of ranks; floating-point and complex dtypes only.
};

/// The calls that the ranks of one run make together.
///
/// Every rank makes the same calls in the same order, with the same dtype and shape: that is checked in each call, and
/// ranks that disagree all get an Error that says who asked for what. Tensors may lie on any device and have any
/// strides; elements travel in logical order. Every call blocks, and has the deadline that the group was made with:
///
/// @throws PeerLost  a rank died or left. That shows within moments, whatever the deadline, once the ranks that come
///                   before it in order have arrived.
/// @throws TimedOut  a rank did not arrive before the deadline. The message names operation, deadline and rank.
///
/// After a failure the group is over: a tensor that was to be written may be half written, and every later call throws
/// the first error again. The other ranks learn of it and fail for the same reason, also in another call. Wrong
/// arguments (Error) are found before anything is sent and leave the group whole.
///
/// Not thread-safe: one caller at a time. Results are the same, bit for bit, whatever the implementation.
class Collective {
 public:
  Collective() = default;
  Collective(const Collective&) = delete;
  Collective& operator=(const Collective&) = delete;
  virtual ~Collective() = default;

  [[nodiscard]] virtual int rank() const noexcept = 0;
  [[nodiscard]] virtual int world_size() const noexcept = 0;

  /// Replaces `tensor` on every rank by the sum or mean over the ranks. The ranks' values are added one after another
  /// in rank order, ((r0 + r1) + r2) + …, so that the result is deterministic; 16-bit floats are added in fp32 and
  /// rounded once.
  virtual void all_reduce(at::Tensor& tensor, Reduction reduction) = 0;

  /// The tensors of all ranks in rank order, as new tensors on `tensor`'s device. Their first dimensions may differ
  /// from rank to rank and may be 0.
  [[nodiscard]] virtual std::vector<at::Tensor> all_gather(const at::Tensor& tensor) = 0;

  /// Replaces `tensor` on every rank by that of rank `root`.
  virtual void broadcast(at::Tensor& tensor, int root) = 0;

  /// Gives outgoing[r] to rank r. @param outgoing  one tensor for each rank, in rank order, all of one dtype, which is
  /// the same on every rank. Sizes are free: they may differ from pair to pair and be empty.
  /// @returns what each rank had for this one, in rank order: new tensors of one dimension, the elements in logical
  /// order, on the device of outgoing[rank()], which is among them as a copy.
  [[nodiscard]] virtual std::vector<at::Tensor> all_to_all(std::span<const at::Tensor> outgoing) = 0;

  /// Returns when every rank has called it.
  virtual void barrier() = 0;
};

}  // namespace spillway::distributed
