#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <queue/bank_fixture.hpp>
#include <spillway/offload/error.hpp>
#include <spillway/queue/bank_plan.hpp>
#include <support/property.hpp>

namespace spillway::queue::bank_plan_test {
namespace {

using test::Storage;
using testing::AllOf;
using testing::HasSubstr;
using testing::ThrowsMessage;

BankOptions small_bank() {
  BankOptions options;
  options.capacity = 65'536;
  options.dim = 128;
  options.segment_rows = 4'096;
  return options;
}

TEST(PlaceBank, KeepsEverythingInMemoryWhereItFits) {
  BankOptions options = small_bank();
  options.host_bytes = 17ULL * (1U << 20U) + kTileRows * 128 * 4;
  const BankPlacement placement = place_bank(options);
  EXPECT_EQ(placement.segments_max, 17);
  EXPECT_EQ(placement.resident_segments, 17);
  EXPECT_EQ(placement.host_bytes(), options.host_bytes);
  EXPECT_EQ(placement.ring_bytes, 0U);
  EXPECT_EQ(placement.disk_bytes, 0U);
}

TEST(PlaceBank, SpillsWhatDoesNotFitBesideTheRing) {
  BankOptions options = small_bank();
  options.host_bytes = 8U << 20U;
  options.disk_allowed = true;
  const BankPlacement placement = place_bank(options);
  EXPECT_EQ(placement.ring_bytes, 4U << 20U);
  EXPECT_EQ(placement.resident_segments, 3);  // The tile takes a part of the fourth MiB.
  EXPECT_EQ(placement.disk_bytes, 14U << 20U);
  EXPECT_LE(placement.host_bytes(), options.host_bytes);
}

TEST(PlaceBank, RefusesABudgetThatIsTooSmallAndSaysWhatWouldDo) {
  BankOptions options = small_bank();
  options.host_bytes = 8U << 20U;
  EXPECT_THAT([&] { (void)place_bank(options); },
              ThrowsMessage<BudgetExceeded>(AllOf(HasSubstr("8 MiB"), HasSubstr("spill to disk"))));
  options.disk_allowed = true;
  options.host_bytes = 5U << 20U;
  EXPECT_THAT([&] { (void)place_bank(options); },
              ThrowsMessage<BudgetExceeded>(AllOf(HasSubstr("at least 5.28 MiB"), HasSubstr("segment_rows"))));
}

TEST(PlaceBank, RefusesSizesThatMakeNoSense) {
  const auto refused = [](auto change, const char* text) {
    BankOptions options = small_bank();
    change(options);
    EXPECT_THAT([&] { (void)place_bank(options); }, ThrowsMessage<ConfigError>(HasSubstr(text)));
  };
  refused([](BankOptions& o) { o.capacity = 0; }, "bank: capacity is 0");
  refused([](BankOptions& o) { o.dim = -3; }, "dim is -3");
  refused([](BankOptions& o) { o.segment_rows = 0; }, "segment_rows is 0");
  refused([](BankOptions& o) { o.ring_slots = 1; }, "ring_slots is 1");
  refused([](BankOptions& o) { o.dtype = at::kLong; }, "dtype is Long");
  refused([](BankOptions& o) { o.capacity = std::int64_t{1} << 62; }, "capacity is 4611686018427387904");
}

/// A random run: what it was predicted to move, and what the tiers counted.
void expect_forecast_holds(test::Random& random, Storage storage) {
  const test::BankShape shape{static_cast<std::int64_t>(random.between(1, 60)), 3, at::kFloat,
                              static_cast<std::int64_t>(random.between(1, 9))};
  const BankOptions options = test::bank_options(shape, storage, static_cast<std::int64_t>(random.between(1, 4)));
  const test::TestTiers tiers(storage);
  NegativeBank bank(tiers.get(), options);
  BankForecast forecast(options);
  std::vector<BankOperation> operations;
  BankTraffic sum;
  for (int i = 0; i < 40; ++i) {
    if (random.chance(1, 8)) {
      const auto capacity = static_cast<std::int64_t>(random.between(1, static_cast<std::uint64_t>(shape.capacity)));
      operations.push_back({BankOperation::Kind::kResize, capacity});
      forecast.resize(capacity);
      bank.resize(capacity);
    } else if (random.chance(1, 2)) {
      operations.push_back({BankOperation::Kind::kScan});
      const BankTraffic step = forecast.scan();
      EXPECT_EQ(step.read_bytes, bank.predicted_read_bytes_per_scan());
      sum += step;
      if (random.chance(1, 2)) bank.prefetch();
      bank.scan(at::kFloat, [](const BankTile&) {});
    } else {
      const auto rows = static_cast<std::int64_t>(random.below(random.chance(1, 6) ? 100 : 12));
      operations.push_back({BankOperation::Kind::kEnqueue, rows});
      sum += forecast.enqueue(rows);
      bank.enqueue(test::random_rows(rows, 3, random.below(1000)));
    }
    bank.flush();
    ASSERT_EQ(tiers.get()->stats().read_bytes.load(), sum.read_bytes);
    ASSERT_EQ(tiers.get()->stats().written_bytes.load(), sum.written_bytes);
  }
  EXPECT_EQ(predict_bank_traffic(options, operations), sum);
}

TEST(BankForecast, EqualsWhatIoUringMoves) {
  test::for_random_seeds(20, [](test::Random& random) { expect_forecast_holds(random, Storage::kUring); });
}

TEST(BankForecast, EqualsWhatTheThreadEngineMoves) {
  test::for_random_seeds(20, [](test::Random& random) { expect_forecast_holds(random, Storage::kThreads); });
}

TEST(BankForecast, SaysThatABankInMemoryMovesNothing) {
  test::for_random_seeds(5, [](test::Random& random) { expect_forecast_holds(random, Storage::kMemory); });
}

}  // namespace
}  // namespace spillway::queue::bank_plan_test
