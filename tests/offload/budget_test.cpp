#include <spillway/offload/budget.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <thread>
#include <utility>
#include <vector>

#include <spillway/offload/error.hpp>
#include <spillway/offload/format_bytes.hpp>

#include "support/property.hpp"

namespace spillway::offload::budget_test {
namespace {

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;

std::string refusal(Budget& budget, std::uint64_t bytes, const std::string& owner) {
  try {
    static_cast<void>(budget.reserve(bytes, owner));
  } catch (const BudgetExceeded& error) {
    return error.what();
  }
  return {};
}

TEST(Budget, CountsWhatIsReservedAndItsPeak) {
  Budget budget(Tier::kHost, 100);
  Reservation first = budget.reserve(60, "bank");
  {
    const Reservation second = budget.reserve(40, "state");
    EXPECT_EQ(budget.used_bytes(), 100U);
    EXPECT_EQ(budget.available_bytes(), 0U);
  }
  EXPECT_EQ(budget.used_bytes(), 60U);
  EXPECT_EQ(budget.peak_bytes(), 100U);
  first = {};
  EXPECT_EQ(budget.used_bytes(), 0U);
}

TEST(Budget, RefusesOneByteTooManyAndReservesNothingThen) {
  Budget budget(Tier::kDisk, 100);
  const Reservation held = budget.reserve(60, "bank");
  EXPECT_THROW(static_cast<void>(budget.reserve(41, "state")), BudgetExceeded);
  EXPECT_THROW(static_cast<void>(budget.reserve(std::numeric_limits<std::uint64_t>::max(), "state")), BudgetExceeded);
  EXPECT_EQ(budget.used_bytes(), 60U);
  EXPECT_EQ(budget.peak_bytes(), 60U);
  static_cast<void>(budget.reserve(40, "state"));
}

TEST(Budget, NamesWhoHoldsWhatAndTheSettingInItsRefusal) {
  Budget budget(Tier::kHost, 128 * kMiB);
  const Reservation ring = budget.reserve(16 * kMiB, "optimizer state ring");
  const Reservation resident = budget.reserve(100 * kMiB, "optimizer state resident");
  EXPECT_EQ(refusal(budget, 96 * kMiB, "bank resident"),
            "host budget of 128 MiB exceeded: bank resident wants 96 MiB, 12 MiB are free; held by "
            "[optimizer state resident: 100 MiB] [optimizer state ring: 16 MiB]; "
            "raise offload.host_bytes (--host-budget) or move more to disk");
  Budget disk(Tier::kDisk, 0);
  EXPECT_EQ(refusal(disk, 1536, "bank"),
            "disk budget of 0 B exceeded: bank wants 1.50 KiB, 0 B are free; held by nobody; "
            "raise offload.disk_bytes");
}

TEST(Budget, AddsUpAnOwnersReservationsInOneRow) {
  Budget budget(Tier::kHost, kUnlimitedBytes);
  const Reservation a = budget.reserve(1, "b");
  const Reservation b = budget.reserve(2, "a");
  Reservation c = budget.reserve(3, "b");
  ASSERT_EQ(budget.rows().size(), 2U);
  EXPECT_EQ(budget.rows()[0].owner, "a");
  EXPECT_EQ(budget.rows()[1].bytes, 4U);
  c = {};
  EXPECT_EQ(budget.rows()[1].bytes, 1U);
}

TEST(Reservation, ReturnsItsBytesOnceHoweverItIsMoved) {
  Budget budget(Tier::kHost, 10);
  Reservation first = budget.reserve(4, "a");
  Reservation second(std::move(first));
  EXPECT_EQ(first.bytes(), 0U);
  EXPECT_EQ(second.bytes(), 4U);
  second = budget.reserve(6, "b");
  EXPECT_EQ(budget.used_bytes(), 6U);
  Reservation& itself = second;
  second = std::move(itself);
  EXPECT_EQ(budget.used_bytes(), 6U);
}

TEST(Budget, HoldsItsLimitAgainstManyThreads) {
  Budget budget(Tier::kHost, 1000);
  {
    std::vector<std::jthread> threads;
    for (std::uint64_t t = 0; t < 4; ++t) {
      threads.emplace_back([&budget, t] {
        test::Random random(t + 1);
        std::vector<Reservation> held;
        for (int i = 0; i < 2000; ++i) {
          if (random.chance(1, 2) && !held.empty()) {
            held.pop_back();
            continue;
          }
          try {
            held.push_back(budget.reserve(random.between(1, 400), "owner " + std::to_string(t)));
          } catch (const BudgetExceeded&) {
            held.clear();
          }
        }
      });
    }
  }
  EXPECT_LE(budget.peak_bytes(), 1000U);
  EXPECT_GT(budget.peak_bytes(), 600U);
  EXPECT_EQ(budget.used_bytes(), 0U);
  EXPECT_TRUE(budget.rows().empty());
}

TEST(BudgetDeathTest, EndsTheProcessWhenAReservationOutlivesIt) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_DEATH(
      {
        Reservation held;
        Budget budget(Tier::kHost, 10);
        held = budget.reserve(1, "a");
      },
      "outlives its budget");
}

TEST(FormatBytes, PicksTheLargestUnitAndNoMoreDigitsThanNeeded) {
  EXPECT_EQ(format_bytes(0), "0 B");
  EXPECT_EQ(format_bytes(1023), "1023 B");
  EXPECT_EQ(format_bytes(1024), "1 KiB");
  EXPECT_EQ(format_bytes(1536), "1.50 KiB");
  EXPECT_EQ(format_bytes(std::uint64_t{5} << 30), "5 GiB");
  EXPECT_EQ(format_bytes(std::numeric_limits<std::uint64_t>::max()), "16.00 EiB");
}

}  // namespace
}  // namespace spillway::offload::budget_test
