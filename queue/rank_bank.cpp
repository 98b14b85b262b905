#include <algorithm>
#include <numeric>
#include <utility>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/tensor.h>

#include <spillway/distributed/collective.hpp>
#include <spillway/distributed/together.hpp>
#include <spillway/offload/error.hpp>
#include <spillway/queue/key_admission.hpp>
#include <spillway/queue/rank_bank.hpp>
#include <spillway/queue/row_exchange.hpp>

namespace spillway::queue {

namespace {

at::Tensor index_tensor(const std::vector<std::int64_t>& numbers) {
  return at::tensor(numbers, at::TensorOptions(at::kLong));
}

struct Field {
  const char* name;
  std::int64_t value;
  std::string (*text)(std::int64_t value) = [](std::int64_t number) { return std::to_string(number); };
};

std::string dtype_text(std::int64_t value) { return c10::toString(static_cast<at::ScalarType>(value)); }

std::string sharing_text(std::int64_t value) {
  constexpr const char* kNames[] = {"replicated", "per rank", "sharded"};
  return kNames[value];
}

/// What the ranks have to have in common.
std::vector<Field> common_fields(const RankBankOptions& options, int world_size) {
  const BankOptions& bank = options.bank;
  std::vector<Field> fields{{"capacity", bank.capacity},
                            {"capacity_max", bank.capacity_limit()},
                            {"dim", bank.dim},
                            {"dtype", static_cast<std::int64_t>(bank.dtype), dtype_text},
                            {"labels", bank.labels ? 1 : 0},
                            {"sharing", static_cast<std::int64_t>(options.sharing), sharing_text},
                            {"the number of weights", static_cast<std::int64_t>(options.weights.size())}};
  for (std::size_t rank = 0; rank < static_cast<std::size_t>(world_size); ++rank) {
    fields.push_back({"a weight", rank < options.weights.size() ? options.weights[rank] : 0});
  }
  return fields;
}

void check_agreement(const RankBankOptions& options, distributed::Collective& ranks) {
  const std::vector<Field> mine = common_fields(options, ranks.world_size());
  std::vector<std::int64_t> values;
  for (const Field& field : mine) values.push_back(field.value);
  const std::vector<at::Tensor> all = ranks.all_gather(index_tensor(values));
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    for (std::size_t i = 0; i < mine.size(); ++i) {
      const std::int64_t theirs = all[rank].const_data_ptr<std::int64_t>()[i];
      if (theirs == mine[i].value) continue;
      throw ConfigError(options.bank.name + ": the ranks disagree on " + mine[i].name + ": rank " +
                        std::to_string(ranks.rank()) + " has " + mine[i].text(mine[i].value) + ", rank " +
                        std::to_string(rank) + " has " + mine[i].text(theirs) +
                        "; give every rank the same configuration of the bank");
    }
  }
}

RankBankOptions with_weights(RankBankOptions options, distributed::Collective& ranks) {
  check_agreement(options, ranks);
  const auto world_size = static_cast<std::size_t>(ranks.world_size());
  if (options.weights.empty()) options.weights.assign(world_size, 1);
  const bool usable = options.weights.size() == world_size &&
                      std::all_of(options.weights.begin(), options.weights.end(), [](auto w) { return w >= 0; }) &&
                      std::accumulate(options.weights.begin(), options.weights.end(), std::int64_t{0}) > 0;
  if (usable) return options;
  throw ConfigError(options.bank.name + ": " + std::to_string(options.weights.size()) + " weights for " +
                    std::to_string(world_size) + " ranks; wanted one for each, of 0 or more, and not 0 for all");
}

/// Of the bank that this rank keeps.
BankOptions local_options(const RankBankOptions& options, const ShardPattern& pattern, int rank) {
  BankOptions local = options.bank;
  if (options.sharing != BankSharing::kSharded || local.capacity < 1) return local;
  // A rank that is to hold nothing keeps room for one row: there is no bank without any.
  local.capacity_max = std::max<std::int64_t>(pattern.most(rank, options.bank.capacity_limit()), 1);
  local.capacity = std::clamp<std::int64_t>(pattern.most(rank, options.bank.capacity), 1, local.capacity_max);
  return local;
}

/// Places of rows that come rank by rank, `counts[r]` of rank r from the oldest to the newest, in the order of their
/// age from the oldest to the newest; in rank order where that is equal.
std::vector<std::int64_t> by_age(const std::vector<std::int64_t>& counts) {
  std::vector<std::int64_t> order;
  const std::int64_t longest = *std::max_element(counts.begin(), counts.end());
  for (std::int64_t age = longest - 1; age >= 0; --age) {
    std::int64_t first = 0;
    for (const std::int64_t count : counts) {
      if (age < count) order.push_back(first + count - 1 - age);
      first += count;
    }
  }
  return order;
}

}  // namespace

RankBank::RankBank(std::shared_ptr<offload::Tiers> tiers, const RankBankOptions& options,
                   distributed::Collective& ranks)
    : options_(with_weights(options, ranks)), ranks_(ranks), pattern_(options_.weights) {
  distributed::together(ranks_, "make its part of " + options_.bank.name, [&] {
    local_ = std::make_unique<NegativeBank>(std::move(tiers), local_options(options_, pattern_, ranks_.rank()));
  });
}

RankBank::~RankBank() = default;

std::int64_t RankBank::size() const noexcept {
  return options_.sharing == BankSharing::kSharded ? valid_ : local_->size();
}

InfoNceOptions RankBank::loss_options(InfoNceOptions options) const {
  if (options_.sharing == BankSharing::kSharded) options.ranks = &ranks_;
  return options;
}

void RankBank::enqueue(const at::Tensor& keys, const at::Tensor& labels) {
  const at::NoGradGuard no_grad;
  if (options_.sharing == BankSharing::kPerRank) {
    local_->enqueue(keys, labels);
    return;
  }
  AdmittedKeys own;
  distributed::together(ranks_, "enqueue its keys", [&] { own = admit_keys(local_->options(), keys, labels); });
  std::int64_t rejected = 0;
  for (const at::Tensor& theirs : ranks_.all_gather(index_tensor({own.rejected})))
    rejected += theirs.item<std::int64_t>();
  const std::string warning = own.rejected == 0 ? ""
                                                : "rank " + std::to_string(ranks_.rank()) + ": " +
                                                      rejection_warning(local_->options(), own, keys.size(0));
  local_->note_rejected(rejected, warning);
  options_.sharing == BankSharing::kSharded ? share(own.rows) : local_->append(gather_stored_rows(own.rows, ranks_));
}

// Gives each row to the rank that holds it.
void RankBank::share(const StoredRows& own) {
  std::int64_t number = next_number_;
  std::int64_t end = next_number_;
  const std::vector<at::Tensor> counts = ranks_.all_gather(index_tensor({own.size()}));
  for (std::size_t rank = 0; rank < counts.size(); ++rank) {
    const auto rows = counts[rank].item<std::int64_t>();
    end += rows;
    if (static_cast<int>(rank) < ranks_.rank()) number += rows;
  }
  std::vector<std::vector<std::int64_t>> of_rank(counts.size());
  // Of a batch that is larger than the bank only the newest rows go anywhere.
  for (std::int64_t row = std::max<std::int64_t>(0, end - capacity() - number); row < own.size(); ++row) {
    of_rank[static_cast<std::size_t>(pattern_.owner(number + row))].push_back(row);
  }
  std::vector<StoredRows> outgoing;
  for (const std::vector<std::int64_t>& rows : of_rank) outgoing.push_back(own.select(index_tensor(rows)));
  const StoredRows incoming = exchange_stored_rows(outgoing, ranks_);
  valid_ = std::min(valid_ + end - next_number_, capacity());
  next_number_ = end;
  local_->append(incoming);
  trim_shard();
}

void RankBank::trim_shard() { local_->keep_newest(pattern_.count(ranks_.rank(), next_number_ - valid_, next_number_)); }

void RankBank::resize(std::int64_t capacity) {
  distributed::together(ranks_, "resize its part of " + options_.bank.name,
                        [&] { options_.bank.check_resize(capacity); });
  const std::int64_t limit = options_.bank.capacity_limit();
  options_.bank.capacity = capacity;
  options_.bank.capacity_max = limit;
  local_->resize(local_options(options_, pattern_, ranks_.rank()).capacity);
  if (options_.sharing != BankSharing::kSharded) return;
  valid_ = std::min(valid_, capacity);
  trim_shard();
}

void RankBank::synchronise() {
  if (options_.sharing != BankSharing::kPerRank) return;
  const std::int64_t world_size = ranks_.world_size();
  const std::int64_t share = capacity() / world_size + (ranks_.rank() < capacity() % world_size ? 1 : 0);
  const std::int64_t own = std::min(share, local_->size());
  std::vector<std::int64_t> counts;
  for (const at::Tensor& theirs : ranks_.all_gather(index_tensor({own}))) counts.push_back(theirs.item<std::int64_t>());
  const std::int64_t longest = *std::max_element(counts.begin(), counts.end());
  const BankCounts before = local_->counts();
  std::int64_t appended = 0;
  // Piece by piece from the oldest on. What is still to be read of this rank's rows is never pushed out by what has
  // been appended: together these are no more than all that the ranks give, which the capacity holds.
  for (std::int64_t age = longest; age > 0;) {
    const std::int64_t younger = std::max<std::int64_t>(age - kTileRows, 0);
    std::vector<std::int64_t> pieces;
    for (const std::int64_t count : counts) {
      pieces.push_back(std::min(age, count) - std::min(younger, count));
    }
    const std::int64_t mine = pieces[static_cast<std::size_t>(ranks_.rank())];
    const std::int64_t first = local_->size() - std::min(younger + mine + appended, local_->size());
    StoredRows piece;
    distributed::together(ranks_, "read its newest rows", [&] {
      piece = local_->stored_rows(at::arange(first, first + mine, at::TensorOptions(at::kLong)));
    });
    const StoredRows all = gather_stored_rows(piece, ranks_).select(index_tensor(by_age(pieces)));
    local_->append(all);
    appended += all.size();
    age = younger;
  }
  local_->keep_newest(appended);
  local_->restore_counts(appended % capacity(), before);
}

RankBankState RankBank::take_state() {
  RankBankState state;
  distributed::together(ranks_, "give its part of the state of " + options_.bank.name,
                        [&] { state.local = queue::take_state(*local_); });
  state.next_number = next_number_;
  state.valid = valid_;
  state.weights = options_.weights;
  return state;
}

void RankBank::put_state(std::span<const RankBankState> states) {
  distributed::together(ranks_, "take up the state of " + options_.bank.name, [&] {
    if (states.empty()) throw ConfigError(options_.bank.name + ": there is no state to take up");
    for (const RankBankState& state : states) check_stored(local_->options(), state.local.rows);
    const auto rank = static_cast<std::size_t>(ranks_.rank());
    const bool same_ranks = states.size() == static_cast<std::size_t>(ranks_.world_size());
    if (options_.sharing == BankSharing::kReplicated) {
      queue::put_state(*local_, states.front().local);
    } else if (options_.sharing == BankSharing::kPerRank && same_ranks) {
      queue::put_state(*local_, states[rank].local);
    } else {
      const StoredRows rows = own_rows_of(states);
      BankCounts counts = states[std::min(rank, states.size() - 1)].local.counts;
      local_->clear();
      local_->append(rows);
      local_->restore_counts(local_->size() % local_->capacity(), counts);
    }
  });
  if (options_.sharing != BankSharing::kSharded) return;
  next_number_ = states.front().next_number;
  valid_ = std::min(states.front().valid, capacity());
  trim_shard();
}

// What this rank has to hold of what other ranks held.
StoredRows RankBank::own_rows_of(std::span<const RankBankState> states) const {
  std::vector<StoredRows> parts;
  std::vector<std::int64_t> counts;
  for (const RankBankState& state : states) {
    parts.push_back(state.local.rows);
    counts.push_back(state.local.rows.size());
  }
  const StoredRows all = join_rows(parts);
  if (options_.sharing == BankSharing::kPerRank) {
    std::vector<std::int64_t> order = by_age(counts);
    const auto extra = std::max<std::int64_t>(0, static_cast<std::int64_t>(order.size()) - capacity());
    order.erase(order.begin(), order.begin() + extra);
    return all.select(index_tensor(order));
  }
  const std::int64_t end = states.front().next_number;
  const std::int64_t first = end - states.front().valid;
  const ShardPattern former(states.front().weights);
  std::vector<std::int64_t> next(states.size(), 0);  // Of each former rank's rows, in the joined ones.
  std::partial_sum(counts.begin(), counts.end() - 1, next.begin() + 1);
  std::vector<std::int64_t> mine;
  for (std::int64_t number = first; number < end; ++number) {
    const std::int64_t place = next[static_cast<std::size_t>(former.owner(number))]++;
    if (pattern_.owner(number) == ranks_.rank()) mine.push_back(place);
  }
  return all.select(index_tensor(mine));
}

}  // namespace spillway::queue
