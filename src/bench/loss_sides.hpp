#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include <ATen/core/Tensor.h>

#include <spillway/queue/negative_bank.hpp>

namespace spillway::app {

inline constexpr double kBenchTemperature = 0.07;

/// [rows, dim] float32 of length 1, from a generator of this seed.
[[nodiscard]] at::Tensor bench_unit_rows(std::int64_t rows, std::int64_t dim, std::uint64_t seed);

/// What a side has computed.
struct LossAndGradient {
  at::Tensor loss;  ///< Scalar.
  at::Tensor d_q;   ///< [N, D]
};

/// InfoNCE with MoCo's queue, loss and backward, over a bank: what Spillway does.
LossAndGradient streamed_loss(const at::Tensor& q, const at::Tensor& k, queue::NegativeBank& bank);
/// The usual way: one product with all of the queue, cat, cross_entropy, backward. @param keys  [K, D] float32.
LossAndGradient table_loss(const at::Tensor& q, const at::Tensor& k, const at::Tensor& keys);

/// The two products alone, of which no such loss can do without either: queries with all keys, logits with all keys.
/// Tile by tile, so that the logits stay in the cache: whole tables take half as long again.
class BareProducts {
 public:
  BareProducts(at::Tensor q, at::Tensor keys);
  void run();

 private:
  at::Tensor q_;
  at::Tensor keys_;
  at::Tensor logits_;
  at::Tensor weighted_;
};

/// @throws Error, which names `row`, where loss or gradient differ by more than what `tolerance` (relative) allows.
void compare_losses(const std::string& row, const LossAndGradient& ours, const LossAndGradient& theirs,
                    double tolerance);

/// A full bank in host memory with the rows of `keys` [K, D].
[[nodiscard]] std::unique_ptr<queue::NegativeBank> resident_bank(const at::Tensor& keys, at::ScalarType dtype);

}  // namespace spillway::app
