#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include <ATen/core/Tensor.h>

#include <spillway/app/bench/loss_sides.hpp>
#include <spillway/offload/tiers.hpp>
#include <spillway/queue/negative_bank.hpp>

namespace spillway::app {

/// A full bank of float16 rows, most of which have to come from disk for each loss, and the same rows in host memory.
/// The rows are few, many times over, so that the loss is known: it doesn't change what moves or is computed.
class StreamedBank {
 public:
  static constexpr std::int64_t kDim = 512;
  static constexpr std::uint64_t kBytesUnit = std::uint64_t{16} << 20;
  static constexpr std::uint64_t kBudgetShare = 8;  ///< The bank is so many times the host budget.

  /// Host memory that the bank on disk has. @param bytes  Of the rows, a multiple of kBytesUnit.
  [[nodiscard]] static std::uint64_t host_bytes(std::uint64_t bytes) noexcept { return bytes / kBudgetShare; }

  /// Blocks until all rows are written. @param folder  On the disk; empty: all rows stay in host memory.
  StreamedBank(const std::string& folder, std::uint64_t bytes);

  [[nodiscard]] queue::NegativeBank& bank() noexcept { return *bank_; }
  [[nodiscard]] std::uint64_t read_bytes_per_scan() const { return bank_->predicted_read_bytes_per_scan(); }
  /// Nanoseconds that callers have waited, since construction.
  [[nodiscard]] std::uint64_t stall_ns() const { return tiers_->stats().stall_ns; }
  /// The loss, from the few rows, with each as often as it is there. float64.
  [[nodiscard]] LossAndGradient expected(const at::Tensor& q, const at::Tensor& k) const;

 private:
  std::shared_ptr<offload::Tiers> tiers_;
  std::unique_ptr<queue::NegativeBank> bank_;
  at::Tensor distinct_;  // [n, kDim] float16.
};

}  // namespace spillway::app
