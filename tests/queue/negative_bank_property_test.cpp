// The bank against a model that keeps its rows in a deque.
#include <cmath>
#include <deque>
#include <span>
#include <vector>

#include <ATen/ops/empty.h>
#include <ATen/ops/stack.h>
#include <gtest/gtest.h>

#include <queue/bank_fixture.hpp>
#include <support/property.hpp>

namespace spillway::queue::negative_bank_property_test {
namespace {

using test::contents;
using test::Random;
using test::Storage;

class Model {
 public:
  Model(std::int64_t capacity, std::int64_t dim, at::ScalarType dtype)
      : capacity_(capacity), dim_(dim), dtype_(dtype) {}

  void enqueue(const at::Tensor& rows) {
    for (std::int64_t i = 0; i < rows.size(0); ++i) {
      const at::Tensor row = rows[i].to(dtype_);
      if (!row.isfinite().all().item<bool>()) {
        ++rejected_;
        continue;
      }
      rows_.push_back(row);
      ++accepted_;
      if (static_cast<std::int64_t>(rows_.size()) > capacity_) rows_.pop_front();
    }
  }
  void clear() {
    rows_.clear();
    accepted_ = 0;
  }

  void expect_equal(NegativeBank& bank) const {
    ASSERT_EQ(bank.size(), static_cast<std::int64_t>(rows_.size()));
    ASSERT_EQ(bank.position(), accepted_ % capacity_);
    ASSERT_EQ(bank.rejected_rows(), rejected_);
    const std::vector<at::Tensor> rows(rows_.begin(), rows_.end());
    const at::Tensor wanted = rows.empty() ? at::empty({0, dim_}, at::TensorOptions(dtype_)) : at::stack(rows);
    ASSERT_TRUE(contents(bank).equal(wanted.to(at::kFloat)));
  }

 private:
  std::int64_t capacity_;
  std::int64_t dim_;
  at::ScalarType dtype_;
  std::deque<at::Tensor> rows_;
  std::int64_t accepted_ = 0;
  std::uint64_t rejected_ = 0;
};

void expect_bank_follows_model(Random& random, Storage storage) {
  constexpr at::ScalarType kDtypes[] = {at::kHalf, at::kBFloat16, at::kFloat, at::kDouble};
  const test::BankShape shape{
      static_cast<std::int64_t>(random.chance(1, 4) ? random.between(500, 2500) : random.between(1, 60)),
      static_cast<std::int64_t>(random.between(1, 9)), random.pick(std::span<const at::ScalarType>(kDtypes)),
      static_cast<std::int64_t>(random.chance(1, 4) ? random.between(50, 700) : random.between(1, 20))};
  BankOptions options = test::bank_options(shape, storage, static_cast<std::int64_t>(random.between(1, 5)));
  if (storage != Storage::kMemory) {
    const auto more_slots = static_cast<unsigned>(random.below(3));
    options.host_bytes += more_slots * place_bank(options).segment_bytes;
    options.ring_slots += more_slots;
  }
  const test::TestTiers tiers(storage);
  NegativeBank bank(tiers.get(), options);
  Model model(shape.capacity, shape.dim, shape.dtype);
  for (int operation = 0; operation < 30; ++operation) {
    const std::uint64_t kind = random.below(20);
    if (kind == 0) {
      bank.clear();
      model.clear();
    } else if (kind <= 3) {
      bank.prefetch();
    } else {
      const auto bound =
          static_cast<std::uint64_t>(random.chance(1, 5) ? 2 * shape.capacity + 2 : shape.segment_rows + 2);
      at::Tensor rows =
          test::random_rows(static_cast<std::int64_t>(random.below(bound)), shape.dim, random.below(1'000'000));
      if (rows.size(0) > 0 && random.chance(1, 6)) {
        rows[static_cast<std::int64_t>(random.below(static_cast<std::uint64_t>(rows.size(0))))][0].fill_(NAN);
      }
      bank.enqueue(rows);
      model.enqueue(rows);
    }
    if (random.chance(1, 2)) {
      ASSERT_NO_FATAL_FAILURE(model.expect_equal(bank)) << "after operation " << operation;
    }
  }
  model.expect_equal(bank);
}

TEST(BankProperty, HoldsTheNewestRowsInMemory) {
  test::for_random_seeds(12, [](Random& random) { expect_bank_follows_model(random, Storage::kMemory); });
}

TEST(BankProperty, HoldsTheNewestRowsOverIoUring) {
  test::for_random_seeds(12, [](Random& random) { expect_bank_follows_model(random, Storage::kUring); });
}

TEST(BankProperty, HoldsTheNewestRowsOverTheThreadEngine) {
  test::for_random_seeds(12, [](Random& random) { expect_bank_follows_model(random, Storage::kThreads); });
}

}  // namespace
}  // namespace spillway::queue::negative_bank_property_test
