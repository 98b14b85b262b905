#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>

#include <torch/optim/optimizer.h>

#include <spillway/offload/parallel.hpp>
#include <spillway/optimizer/kernel_types.hpp>

namespace spillway::optimizer {

/// A run of consecutive elements of one parameter, and where all that its update touches lies: a whole tensor, or a
/// shard of one. The gradient may be the parameter's own or an accumulator elsewhere. Host memory, not owned.
struct UpdatePiece {
  std::uint64_t numel = 0;
  KernelTypes types;
  const void* gradient = nullptr;
  void* weight = nullptr;
  void* master = nullptr;        ///< @see WeightForm; null for forms without.
  std::array<void*, 3> state{};  ///< In the order of StateFields::names(); null where there is none.
  /// Of state in 8 bits (`state` holds the codes then, and the piece begins on a block of 256); else null.
  std::array<float*, 3> scales{};
  const torch::optim::OptimizerOptions* options = nullptr;  ///< Those of its group; outlive the update.
  std::uint64_t step = 1;                                   ///< What FusedUpdate::count() returned for the parameter.
};

/// The fused kernels of one kind of optimizer. Stateless and thread-safe.
class FusedUpdate {
 public:
  using States = ska::flat_hash_map<void*, std::unique_ptr<torch::optim::OptimizerParamState>>;

  FusedUpdate() = default;
  FusedUpdate(const FusedUpdate&) = delete;
  FusedUpdate& operator=(const FusedUpdate&) = delete;
  virtual ~FusedUpdate() = default;

  /// Counts one more update of `parameter` in its state object, which is made, with undefined tensors, where LibTorch's
  /// own step would make one: archives are then those of the plain optimizer. Once a step for each parameter, however
  /// many pieces it has.
  /// @returns the 1-based count of its updates; SGD, which keeps none, says 1 for an update that makes its state, and 2
  /// for others.
  virtual std::uint64_t count(States& states, const at::Tensor& parameter,
                              const torch::optim::OptimizerOptions& options) const = 0;

  /// Whether update() takes state in 8 bits.
  [[nodiscard]] virtual bool takes_codes() const noexcept { return false; }

  /// One update of all pieces in one pass over memory, the same bits however parameters are cut into pieces and for any
  /// number of threads. Pieces share no memory. Blocks until done. @see adam_update for the accuracy.
  virtual void update(std::span<const UpdatePiece> pieces, const GradientScale& scale,
                      const offload::Parallel& parallel) const = 0;
};

/// The kernels for this very class of optimizer: Adam, AdamW, SGD or Adagrad of LibTorch; null for others. The result
/// lives for ever.
[[nodiscard]] const FusedUpdate* find_fused_update(const torch::optim::Optimizer& optimizer) noexcept;

}  // namespace spillway::optimizer
