// Long random sequences of everything that can be done to a bank, against a deque.
//
// SPILLWAY_BANK_OPERATIONS=<n> runs n operations a seed instead of the 500 that an ordinary run has time for.
#include <algorithm>
#include <array>
#include <cstdlib>
#include <deque>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <ATen/ops/empty.h>
#include <gtest/gtest.h>

#include <queue/bank_fixture.hpp>
#include <spillway/queue/bank_state.hpp>
#include <spillway/queue/negative_sample.hpp>
#include <support/property.hpp>

namespace spillway::queue::bank_operations_test {
namespace {

using test::Random;
using test::Storage;

constexpr std::int64_t kDim = 3;
constexpr std::int64_t kLongest = 90;

int operations_of_a_seed() {
  const char* const asked = std::getenv("SPILLWAY_BANK_OPERATIONS");
  return asked == nullptr ? 500 : std::stoi(asked);
}

struct Row {
  std::array<float, kDim> values;
  std::int64_t label;
  friend bool operator==(const Row&, const Row&) = default;
};

struct Model {
  std::deque<Row> rows;
  std::int64_t capacity;
  std::int64_t position = 0;
  std::uint64_t accepted = 0;

  void enqueue(const std::vector<Row>& batch) {
    for (const Row& row : batch) {
      rows.push_back(row);
      if (static_cast<std::int64_t>(rows.size()) > capacity) rows.pop_front();
    }
    position = (position + static_cast<std::int64_t>(batch.size())) % capacity;
    accepted += batch.size();
  }
  void resize(std::int64_t to) {
    if (to == capacity) return;
    capacity = to;
    keep(to);
    position = static_cast<std::int64_t>(rows.size()) % to;
  }
  void keep(std::int64_t newest) {
    while (static_cast<std::int64_t>(rows.size()) > newest) rows.pop_front();
  }
};

/// Values that every dtype holds exactly.
std::vector<Row> random_batch(Random& random, std::size_t count) {
  std::vector<Row> rows(count);
  for (Row& row : rows) {
    for (float& value : row.values) value = static_cast<float>(random.below(256)) - 128.0F;
    row.label = static_cast<std::int64_t>(random.below(1'000'000));
  }
  return rows;
}

void enqueue(NegativeBank& bank, const std::vector<Row>& rows) {
  const auto count = static_cast<std::int64_t>(rows.size());
  at::Tensor keys = at::empty({count, kDim}, at::TensorOptions(at::kFloat));
  at::Tensor labels = at::empty({count}, at::TensorOptions(at::kLong));
  for (std::size_t i = 0; i < rows.size(); ++i) {
    std::copy(rows[i].values.begin(), rows[i].values.end(), keys.mutable_data_ptr<float>() + i * kDim);
    labels.mutable_data_ptr<std::int64_t>()[i] = rows[i].label;
  }
  bank.enqueue(keys, labels);
}

void append_rows(const at::Tensor& values, const at::Tensor& labels, std::vector<Row>& to) {
  const at::Tensor flat = values.contiguous();
  for (std::int64_t i = 0; i < flat.size(0); ++i) {
    Row row{{}, labels.const_data_ptr<std::int64_t>()[i]};
    std::copy_n(flat.const_data_ptr<float>() + i * kDim, kDim, row.values.begin());
    to.push_back(row);
  }
}

void expect_contents(NegativeBank& bank, const Model& model) {
  std::vector<Row> got;
  bank.scan(at::kFloat, [&](const BankTile& tile) { append_rows(tile.rows, tile.labels, got); });
  ASSERT_EQ(got.size(), model.rows.size());
  ASSERT_TRUE(std::equal(got.begin(), got.end(), model.rows.begin()));
}

void expect_sample(NegativeBank& bank, const Model& model, Random& random) {
  if (model.rows.empty()) return;
  SampleOptions options{.rows = static_cast<std::int64_t>(random.between(0, model.rows.size())),
                        .replacement = random.chance(1, 2),
                        .seed = random.below(1000)};
  const SampledNegatives sample = sample_negatives(bank, options);
  std::vector<Row> got;
  append_rows(sample.rows, sample.labels, got);
  ASSERT_EQ(got.size(), static_cast<std::size_t>(options.rows));
  for (std::size_t i = 0; i < got.size(); ++i) {
    ASSERT_EQ(got[i], model.rows[static_cast<std::size_t>(sample.indices.const_data_ptr<std::int64_t>()[i])]);
  }
}

/// Two banks on different tiers, one of which is in use; a checkpoint moves to the other.
class Banks {
 public:
  Banks(Random& random, std::int64_t capacity) {
    constexpr at::ScalarType kDtypes[] = {at::kHalf, at::kBFloat16, at::kFloat, at::kDouble};
    test::BankShape shape{capacity, kDim, random.pick(std::span<const at::ScalarType>(kDtypes))};
    shape.labels = true;
    shape.capacity_max = kLongest;
    const auto random_storage = [&] { return test::kEveryStorage[random.below(3)]; };
    for (const Storage storage : {random_storage(), random_storage()}) {
      shape.segment_rows = static_cast<std::int64_t>(random.pick(std::span<const std::int64_t>(kSegmentRows)));
      tiers_.push_back(std::make_unique<test::TestTiers>(storage));
      const auto resident = static_cast<std::int64_t>(random.between(1, 4));
      banks_.push_back(
          std::make_unique<NegativeBank>(tiers_.back()->get(), test::bank_options(shape, storage, resident)));
    }
  }

  [[nodiscard]] NegativeBank& now() { return *banks_[current_]; }
  void move_to_the_other() {
    NegativeBank& other = *banks_[1 - current_];
    other.resize(now().capacity());
    put_state(other, take_state(now()));
    current_ = 1 - current_;
  }

 private:
  static constexpr std::int64_t kSegmentRows[] = {1, 2, 7, 13, 64, 4096};
  std::vector<std::unique_ptr<test::TestTiers>> tiers_;
  std::vector<std::unique_ptr<NegativeBank>> banks_;
  std::size_t current_ = 0;
};

void one_operation(Banks& banks, Model& model, Random& random) {
  const std::uint64_t kind = random.below(100);
  if (kind < 60) {
    const std::uint64_t longest = random.chance(1, 12) ? 2 * kLongest : 9;
    const std::vector<Row> batch = random_batch(random, static_cast<std::size_t>(random.below(longest + 1)));
    enqueue(banks.now(), batch);
    model.enqueue(batch);
  } else if (kind < 70) {
    ASSERT_NO_FATAL_FAILURE(expect_contents(banks.now(), model));
  } else if (kind < 76) {
    const auto capacity = static_cast<std::int64_t>(random.between(1, kLongest));
    banks.now().resize(capacity);
    model.resize(capacity);
  } else if (kind < 78) {
    const auto newest = static_cast<std::int64_t>(random.below(kLongest));
    banks.now().keep_newest(newest);
    model.keep(newest);
  } else if (kind < 86) {
    ASSERT_NO_FATAL_FAILURE(expect_sample(banks.now(), model, random));
  } else if (kind < 90) {
    banks.move_to_the_other();
  } else if (kind < 99) {
    banks.now().prefetch();
  } else {
    banks.now().clear();
    model.rows.clear();
    model.position = 0;
  }
  ASSERT_EQ(banks.now().size(), static_cast<std::int64_t>(model.rows.size()));
  ASSERT_EQ(banks.now().position(), model.position);
  ASSERT_EQ(banks.now().counts().accepted_rows, model.accepted);
}

TEST(BankOperations, LeaveWhatADequeHolds) {
  test::for_random_seeds(20, [](Random& random) {
    Model model{.rows = {}, .capacity = static_cast<std::int64_t>(random.between(1, kLongest))};
    Banks banks(random, model.capacity);
    const int operations = operations_of_a_seed();
    for (int operation = 0; operation < operations; ++operation) {
      ASSERT_NO_FATAL_FAILURE(one_operation(banks, model, random)) << "operation " << operation;
    }
    expect_contents(banks.now(), model);
  });
}

}  // namespace
}  // namespace spillway::queue::bank_operations_test
