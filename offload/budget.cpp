#include <spillway/offload/budget.hpp>

#include <algorithm>
#include <utility>

#include <spillway/offload/check.hpp>
#include <spillway/offload/error.hpp>
#include <spillway/offload/format_bytes.hpp>

namespace spillway::offload {
namespace {

std::string setting_of(Tier tier) {
  switch (tier) {
    case Tier::kDevice:
      return "raise offload.device_bytes";
    case Tier::kHost:
      return "raise offload.host_bytes (--host-budget) or move more to disk";
    case Tier::kDisk:
      return "raise offload.disk_bytes";
  }
  return {};
}

}  // namespace

Reservation::Reservation(Budget* budget, std::string owner, std::uint64_t bytes) noexcept
    : budget_(budget), owner_(std::move(owner)), bytes_(bytes) {}

Reservation::Reservation(Reservation&& other) noexcept
    : budget_(std::exchange(other.budget_, nullptr)),
      owner_(std::move(other.owner_)),
      bytes_(std::exchange(other.bytes_, 0)) {}

Reservation& Reservation::operator=(Reservation&& other) noexcept {
  Reservation taken(std::move(other));  // First, so that assigning to itself keeps what there is.
  std::swap(budget_, taken.budget_);
  std::swap(owner_, taken.owner_);
  std::swap(bytes_, taken.bytes_);
  return *this;
}

Reservation::~Reservation() {
  if (budget_ != nullptr) {
    budget_->give_back(owner_, bytes_);
  }
}

Budget::Budget(Tier tier, std::uint64_t limit_bytes) : tier_(tier), limit_bytes_(limit_bytes) {}

Budget::~Budget() { SPILLWAY_CHECK(used_bytes_ == 0, "a reservation outlives its budget"); }

Reservation Budget::reserve(std::uint64_t bytes, const std::string& owner) {
  std::string name = owner;  // Copied before the lock: nothing below may throw once the books have changed.
  const std::lock_guard lock(mutex_);
  if (bytes > limit_bytes_ - used_bytes_) {
    std::string text = std::string(to_string(tier_)) + " budget of " + format_bytes(limit_bytes_) +
                       " exceeded: " + owner + " wants " + format_bytes(bytes) + ", " +
                       format_bytes(limit_bytes_ - used_bytes_) + " are free; held by";
    for (const auto& [holder, held] : by_owner_) {
      text += " [" + holder + ": " + format_bytes(held) + "]";
    }
    text += by_owner_.empty() ? " nobody" : "";
    throw BudgetExceeded(text + "; " + setting_of(tier_));
  }
  if (bytes == 0) {
    return {};
  }
  by_owner_[name] += bytes;
  used_bytes_ += bytes;
  peak_bytes_ = std::max(peak_bytes_, used_bytes_);
  return {this, std::move(name), bytes};
}

void Budget::give_back(const std::string& owner, std::uint64_t bytes) noexcept {
  const std::lock_guard lock(mutex_);
  const auto row = by_owner_.find(owner);
  SPILLWAY_CHECK(row != by_owner_.end() && row->second >= bytes, "more is given back than was reserved");
  row->second -= bytes;
  if (row->second == 0) {
    by_owner_.erase(row);
  }
  used_bytes_ -= bytes;
}

std::uint64_t Budget::used_bytes() const {
  const std::lock_guard lock(mutex_);
  return used_bytes_;
}

std::uint64_t Budget::peak_bytes() const {
  const std::lock_guard lock(mutex_);
  return peak_bytes_;
}

std::uint64_t Budget::available_bytes() const {
  const std::lock_guard lock(mutex_);
  return limit_bytes_ - used_bytes_;
}

std::vector<Budget::Row> Budget::rows() const {
  const std::lock_guard lock(mutex_);
  std::vector<Row> rows;
  rows.reserve(by_owner_.size());
  for (const auto& [owner, bytes] : by_owner_) {
    rows.push_back({owner, bytes});
  }
  return rows;
}

}  // namespace spillway::offload
