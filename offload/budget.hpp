#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include <spillway/offload/tier.hpp>

namespace spillway::offload {

inline constexpr std::uint64_t kUnlimitedBytes = std::numeric_limits<std::uint64_t>::max();

class Budget;

/// Bytes of one tier that somebody holds; returned to the budget when this dies. Move-only. The budget outlives it.
class Reservation {
 public:
  Reservation() noexcept = default;
  Reservation(Reservation&& other) noexcept;
  Reservation& operator=(Reservation&& other) noexcept;
  Reservation(const Reservation&) = delete;
  Reservation& operator=(const Reservation&) = delete;
  ~Reservation();

  [[nodiscard]] std::uint64_t bytes() const noexcept { return bytes_; }

 private:
  friend class Budget;
  Reservation(Budget* budget, std::string owner, std::uint64_t bytes) noexcept;
  Budget* budget_ = nullptr;
  std::string owner_;
  std::uint64_t bytes_ = 0;
};

/// The hard limit of one tier on one rank. All that Spillway allocates on the tier is reserved here first, so that
/// the limit can't be exceeded. Thread-safe; calls do not block on anything but a short lock.
class Budget {
 public:
  Budget(Tier tier, std::uint64_t limit_bytes);
  Budget(const Budget&) = delete;
  Budget& operator=(const Budget&) = delete;
  ~Budget();

  /// Reserves `bytes` for `owner` (a short name for reports, such as "optimizer state ring").
  /// @throws BudgetExceeded, with the table of who holds what; nothing is reserved then.
  [[nodiscard]] Reservation reserve(std::uint64_t bytes, const std::string& owner);

  [[nodiscard]] Tier tier() const noexcept { return tier_; }
  [[nodiscard]] std::uint64_t limit_bytes() const noexcept { return limit_bytes_; }
  [[nodiscard]] std::uint64_t used_bytes() const;
  [[nodiscard]] std::uint64_t peak_bytes() const;
  [[nodiscard]] std::uint64_t available_bytes() const;

  struct Row {
    std::string owner;
    std::uint64_t bytes;
  };
  /// Who holds how much now, in the order of owners' names.
  [[nodiscard]] std::vector<Row> rows() const;

 private:
  friend class Reservation;
  void give_back(const std::string& owner, std::uint64_t bytes) noexcept;

  const Tier tier_;
  const std::uint64_t limit_bytes_;
  mutable std::mutex mutex_;
  std::uint64_t used_bytes_ = 0;
  std::uint64_t peak_bytes_ = 0;
  std::map<std::string, std::uint64_t> by_owner_;
};

}  // namespace spillway::offload
