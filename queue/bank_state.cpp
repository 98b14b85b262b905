#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>

#include <spillway/offload/error.hpp>
#include <spillway/queue/bank_state.hpp>
#include <spillway/queue/key_admission.hpp>

namespace spillway::queue {

namespace {

/// No rows, but of the bank's kind.
StoredRows no_rows(const NegativeBank& bank) {
  StoredRows rows;
  rows.values = at::empty({0, bank.dim()}, at::TensorOptions(bank.dtype()));
  if (bank.dtype() == at::kChar) rows.scales = at::empty({0}, at::TensorOptions(at::kFloat));
  if (bank.has_labels()) rows.labels = at::empty({0}, at::TensorOptions(at::kLong));
  return rows;
}

}  // namespace

BankState take_state(NegativeBank& bank) {
  std::vector<StoredRows> pieces{no_rows(bank)};
  bank.scan_stored([&](const StoredRows& rows) { pieces.push_back(rows.clone()); });
  const auto joined = [&](at::Tensor StoredRows::*part) {
    if (!(pieces.front().*part).defined()) return at::Tensor();
    std::vector<at::Tensor> parts;
    for (const StoredRows& piece : pieces) parts.push_back(piece.*part);
    return at::cat(parts);
  };
  return {{joined(&StoredRows::values), joined(&StoredRows::scales), joined(&StoredRows::labels)},
          bank.capacity(),
          bank.position(),
          bank.counts()};
}

void put_state(NegativeBank& bank, const BankState& state) {
  check_stored(bank.options(), state.rows);
  const std::int64_t rows = state.rows.size();
  if (state.capacity < 1 || rows > state.capacity || state.position < 0 || state.position >= state.capacity) {
    throw ConfigError(bank.options().name + ": the state of a bank of capacity " + std::to_string(state.capacity) +
                      " has " + std::to_string(rows) + " rows and position " + std::to_string(state.position) +
                      ", which no bank has: it is damaged, or not of a bank; nothing of it was used");
  }
  bank.restart(std::max<std::int64_t>(0, static_cast<std::int64_t>(state.counts.accepted_rows) - rows));
  bank.append(state.rows);
  const bool same = bank.capacity() == state.capacity;
  bank.restore_counts(same ? state.position : bank.size() % bank.capacity(), state.counts);
}

}  // namespace spillway::queue
