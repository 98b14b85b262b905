#pragma once

#include <cstdint>
#include <span>

#include <spillway/offload/parallel.hpp>
#include <spillway/optimizer/kernel_types.hpp>

namespace spillway::optimizer {

/// The gradient of one tensor; read only.
struct GradientRun {
  const void* elements = nullptr;
  std::uint64_t numel = 0;
  ElementType type = ElementType::kFloat32;
};

/// Elements of a block of gradient_squares(); the last block of a tensor is shorter.
inline constexpr std::uint64_t kSquaresBlockNumel = 16'384;

/// @returns how many blocks the gradients have.
[[nodiscard]] std::uint64_t squares_blocks(std::span<const GradientRun> gradients) noexcept;

/// The float64 sum of squares of every block, in one pass over all gradients, which also finds overflow: a sum is
/// finite if and only if every element of its block is. Adding the sums in their order gives the squared norm, the same
/// for every number of threads, instruction set, and distribution of the blocks over ranks.
/// @param sums [squares_blocks(gradients)], written.
/// @returns whether every element is finite.
bool gradient_squares(std::span<const GradientRun> gradients, std::span<double> sums,
                      const offload::Parallel& parallel);

}  // namespace spillway::optimizer
