#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include <torch/optim/optimizer.h>

#include <spillway/offload/parallel.hpp>
#include <spillway/optimizer/fused_update.hpp>
#include <spillway/optimizer/state_layout.hpp>

namespace spillway::optimizer {

/// Updates the parameters of a sub-group with kernels, as the wrapped optimizer would have. One caller at a time.
class FusedStep {
 public:
  /// Both outlive this.
  FusedStep(torch::optim::Optimizer& optimizer, const FusedUpdate& update) : optimizer_(optimizer), update_(update) {}

  /// One update by each of `members`, which have gradients, in their order where they share memory (tied parameters).
  /// Options are those of the wrapped optimizer's groups. A gradient that is not in its parameter's order in memory is
  /// copied for the time of the update. Parameters' version counters rise, as with any change in place.
  /// @param gradients  by slot, each of its parameter's size, on the CPU and of a type that kernels know: the
  /// parameter's own or another.
  /// @param block  the sub-group's state.
  void run(const SubGroup& group, std::span<const Member> members, std::span<const at::Tensor> gradients,
           std::span<std::byte> block, const GradientScale& scale);

 private:
  [[nodiscard]] UpdatePiece piece_of(const ParameterSlot& slot, std::size_t group, const at::Tensor& given,
                                     std::span<std::byte> block);
  void update(const GradientScale& scale);
  [[nodiscard]] bool share_memory(const SubGroup& group, std::span<const Member> members);

  torch::optim::Optimizer& optimizer_;
  const FusedUpdate& update_;
  offload::Parallel parallel_;
  std::vector<UpdatePiece> pieces_;                                  // Of the update to come.
  std::vector<at::Tensor> copies_;                                   // Gradients in another order, meanwhile.
  std::vector<std::pair<const std::byte*, std::uint64_t>> extents_;  // Of weights, while they are compared.
};

}  // namespace spillway::optimizer
