#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include <spillway/offload/tiers.hpp>
#include <spillway/queue/bank_state.hpp>
#include <spillway/queue/negative_bank.hpp>
#include <spillway/queue/shard_pattern.hpp>
#include <spillway/queue/streaming_loss.hpp>

namespace spillway::distributed {
class Collective;
}

namespace spillway::queue {

/// How the ranks of a run have a bank in common.
enum class BankSharing : std::uint8_t {
  kReplicated,  ///< Every rank holds the keys of all ranks; the banks are equal.
  kPerRank,     ///< Every rank holds its own keys. synchronise() makes them equal, once an epoch or never.
  kSharded,     ///< Every rank holds a part of one bank with the keys of all: N ranks hold a bank N times as large.
};

struct RankBankOptions {
  /// Of each rank's bank; sharded: capacity and capacity_max are those of all parts together.
  BankOptions bank;
  BankSharing sharing = BankSharing::kReplicated;
  /// Sharded: how many of each sum(weights) consecutive rows a rank holds, so that a rank with more memory holds more.
  /// Empty: all the same.
  std::vector<std::int64_t> weights;
};

/// A rank's part of the state of a bank across ranks.
struct RankBankState {
  BankState local;
  std::int64_t next_number = 0;  ///< Sharded: of the row that enters next, on whatever rank.
  std::int64_t valid = 0;        ///< Sharded: rows of all parts together.
  std::vector<std::int64_t> weights;
};

/// A bank that the ranks of a run have in common. All ranks make the same calls in the same order; batches may have
/// different sizes, and be empty. Keys enter in rank order. A row that is not finite is dropped by the rank that has
/// it, before it is sent, and counted on all ranks alike; the first one is reported by that rank. Where a rank fails,
/// all do.
/// @throws what NegativeBank throws, and as distributed::Collective.
class RankBank {
 public:
  /// @param ranks  Used by no other thread meanwhile; outlives this.
  /// @throws ConfigError where the ranks disagree on what they have in common, naming it and both values; segment size
  /// and budgets may differ. What NegativeBank's constructor throws: the other ranks then throw an Error.
  RankBank(std::shared_ptr<offload::Tiers> tiers, const RankBankOptions& options, distributed::Collective& ranks);
  ~RankBank();

  /// What this rank holds.
  [[nodiscard]] NegativeBank& local() noexcept { return *local_; }
  /// Rows over which a loss on this rank is computed: of all parts, where the bank is sharded.
  [[nodiscard]] std::int64_t size() const noexcept;
  [[nodiscard]] std::int64_t capacity() const noexcept { return options_.bank.capacity; }
  /// `options` for info_nce(q, k, local(), …): sharded, the loss is that over all parts.
  [[nodiscard]] InfoNceOptions loss_options(InfoNceOptions options = {}) const;

  /// Adds the keys of all ranks: rank 0's, rank 1's, …; per rank, this rank's own. As NegativeBank::enqueue.
  void enqueue(const at::Tensor& keys, const at::Tensor& labels = {});
  /// As NegativeBank::resize, with the same capacity on all ranks.
  void resize(std::int64_t capacity);
  /// Per rank: every rank's bank becomes the newest rows of all ranks, each rank's share of the capacity (the first
  /// ranks have one more where it can't be divided), by their age, and in rank order where that is equal: the banks are
  /// equal afterwards. Elsewhere it does nothing.
  void synchronise();

  /// This rank's part of the state. Takes as much memory as its rows.
  [[nodiscard]] RankBankState take_state();
  /// Replaces what the ranks hold by what the ranks of an earlier run held, of which there may have been any number.
  /// Replicated: what rank 0 held. Per rank: each its own, or where the number of ranks is another, the newest rows of
  /// all, as synchronise() orders them. Sharded: each rank what it has to hold now.
  /// @param states  Of all ranks of the earlier run, in rank order, equal on every rank.
  void put_state(std::span<const RankBankState> states);

 private:
  void share(const StoredRows& own);
  void trim_shard();
  [[nodiscard]] StoredRows own_rows_of(std::span<const RankBankState> states) const;

  RankBankOptions options_;
  distributed::Collective& ranks_;
  ShardPattern pattern_;
  std::unique_ptr<NegativeBank> local_;
  std::int64_t next_number_ = 0;  // Sharded.
  std::int64_t valid_ = 0;        // Sharded.
};

}  // namespace spillway::queue

namespace spillway {
using queue::BankSharing;
using queue::RankBank;
using queue::RankBankOptions;
}  // namespace spillway
