#pragma once

#include <cstdint>

#include <spillway/queue/negative_bank.hpp>
#include <spillway/queue/row_format.hpp>

namespace spillway::queue {

/// All that a bank knows, apart from where it keeps it: what a checkpoint has to hold. Tiers, segment size and budget
/// of the bank that it is put back into may be others.
struct BankState {
  StoredRows rows;            ///< Oldest to newest, as stored: putting them back rounds nothing.
  std::int64_t capacity = 0;  ///< When the state was taken.
  std::int64_t position = 0;  ///< As NegativeBank::position().
  BankCounts counts;
};

/// A copy of the bank's state, which takes as much memory as the valid rows. (Where that is too much, a caller goes
/// through NegativeBank::scan_stored, append and restore_counts itself.) @throws as NegativeBank::scan.
[[nodiscard]] BankState take_state(NegativeBank& bank);

/// Replaces what `bank` holds and has counted. It keeps its capacity: of more rows the newest survive; position is the
/// state's where the capacities are equal, else that of NegativeBank::resize.
/// @throws ConfigError where dtype, dimension or labels are not the bank's, or the state contradicts itself: the bank
/// is unchanged. IoError.
void put_state(NegativeBank& bank, const BankState& state);

}  // namespace spillway::queue
