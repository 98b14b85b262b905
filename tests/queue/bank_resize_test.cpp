// Banks that grow and shrink while they are used.
#include <string>
#include <vector>

#include <ATen/ops/arange.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <queue/bank_fixture.hpp>
#include <spillway/offload/error.hpp>
#include <spillway/queue/length_schedule.hpp>

namespace spillway::queue::bank_resize_test {
namespace {

using test::contents;
using test::ids;
using test::Storage;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::ThrowsMessage;

class Resize : public testing::TestWithParam<Storage> {
 protected:
  Resize() : tiers_(GetParam()) {}

  [[nodiscard]] BankOptions options(std::int64_t capacity, std::int64_t capacity_max, std::int64_t segment_rows) const {
    test::BankShape shape{capacity, 1, at::kFloat, segment_rows};
    shape.capacity_max = capacity_max;
    return test::bank_options(shape, GetParam());
  }

  test::TestTiers tiers_;
};

INSTANTIATE_TEST_SUITE_P(Storage, Resize, testing::ValuesIn(test::kEveryStorage),
                         [](const auto& instance) { return test::to_string(instance.param); });

TEST_P(Resize, KeepsTheNewestRowsOnTheWayDownAndUp) {
  for (const std::int64_t segment_rows : test::kSegmentRows) {
    SCOPED_TRACE(segment_rows);
    NegativeBank bank(tiers_.get(), options(300, 500, segment_rows));
    bank.enqueue(ids(0, 400));
    EXPECT_TRUE(contents(bank).equal(ids(100, 300)));
    bank.resize(120);
    EXPECT_EQ(bank.capacity(), 120);
    EXPECT_TRUE(contents(bank).equal(ids(280, 120)));
    EXPECT_EQ(bank.position(), 0);
    bank.resize(500);
    EXPECT_TRUE(contents(bank).equal(ids(280, 120)));
    EXPECT_EQ(bank.position(), 120);
    bank.enqueue(ids(400, 450));
    EXPECT_TRUE(contents(bank).equal(ids(350, 500)));
    bank.resize(1);
    EXPECT_TRUE(contents(bank).equal(ids(849, 1)));
    bank.enqueue(ids(850, 7));
    EXPECT_TRUE(contents(bank).equal(ids(856, 1)));
  }
}

TEST_P(Resize, GivesUpReadsOfSegmentsThatGo) {
  NegativeBank bank(tiers_.get(), options(200, 200, 7));
  bank.enqueue(ids(0, 200));
  bank.prefetch();
  bank.resize(30);
  EXPECT_TRUE(contents(bank).equal(ids(170, 30)));
}

TEST_P(Resize, KeepsTheNewestOnRequestWithoutAnotherCapacity) {
  NegativeBank bank(tiers_.get(), options(200, 200, 7));
  bank.enqueue(ids(0, 200));
  bank.keep_newest(250);
  EXPECT_EQ(bank.size(), 200);
  bank.keep_newest(33);
  EXPECT_TRUE(contents(bank).equal(ids(167, 33)));
  bank.keep_newest(0);
  EXPECT_EQ(contents(bank).size(0), 0);
  bank.enqueue(ids(200, 150));
  EXPECT_EQ(bank.capacity(), 200);
  EXPECT_TRUE(contents(bank).equal(ids(200, 150)));
}

TEST_P(Resize, TakesNoMoreThanWasSetAsideForTheLongest) {
  const BankOptions largest = options(10, 500, 7);
  {
    NegativeBank bank(tiers_.get(), largest);
    for (const std::int64_t capacity : {10, 500, 3, 499, 77, 500}) {
      bank.resize(capacity);
      for (int i = 0; i < 12; ++i) bank.enqueue(ids(0, 60));
      EXPECT_EQ(contents(bank).size(0), capacity);
    }
    EXPECT_EQ(tiers_.get()->host().peak_bytes(), bank.placement().host_bytes());
    EXPECT_EQ(tiers_.get()->disk().peak_bytes(), bank.placement().disk_bytes);
  }
  BankOptions full = largest;
  full.capacity = full.capacity_max;
  EXPECT_EQ(place_bank(largest).host_bytes(), place_bank(full).host_bytes());
}

TEST_P(Resize, GoesBackToTheCapacityThatItWasMadeWith) {
  NegativeBank bank(tiers_.get(), options(20, 0, 7));
  bank.resize(5);
  bank.resize(20);
  bank.enqueue(ids(0, 30));
  EXPECT_TRUE(contents(bank).equal(ids(10, 20)));
  EXPECT_THROW(bank.resize(21), ConfigError);
}

TEST_P(Resize, CountsVersions) {
  NegativeBank bank(tiers_.get(), options(20, 40, 7));
  std::uint64_t version = bank.version();
  const auto changed = [&] {
    const bool is_another = bank.version() != version;
    version = bank.version();
    return is_another;
  };
  bank.enqueue(ids(0, 0));
  EXPECT_FALSE(changed());
  bank.enqueue(ids(0, 20));
  EXPECT_TRUE(changed());
  (void)contents(bank);
  bank.prefetch();
  bank.resize(40);
  EXPECT_FALSE(changed());  // The rows are the same.
  bank.resize(19);
  EXPECT_TRUE(changed());
  bank.keep_newest(18);
  EXPECT_TRUE(changed());
  bank.clear();
  EXPECT_TRUE(changed());
}

TEST_P(Resize, RefusesWhatNothingWasSetAsideFor) {
  NegativeBank bank(tiers_.get(), options(20, 40, 7));
  bank.enqueue(ids(0, 20));
  for (const std::int64_t capacity : {std::int64_t{0}, std::int64_t{-1}, std::int64_t{41}}) {
    EXPECT_THAT([&] { bank.resize(capacity); },
                ThrowsMessage<ConfigError>(AllOf(HasSubstr("bank"), HasSubstr("1 to 40"), HasSubstr("capacity_max"))));
  }
  EXPECT_EQ(bank.capacity(), 20);
  EXPECT_TRUE(contents(bank).equal(ids(0, 20)));
  BankOptions wrong = options(20, 40, 7);
  wrong.capacity_max = 19;
  EXPECT_THAT([&] { (void)place_bank(wrong); }, ThrowsMessage<ConfigError>(HasSubstr("capacity_max is 19")));
}

TEST(LengthScheduleTest, GrowsFromTheFirstLengthToTheLast) {
  const LengthSchedule linear{.first = 100, .last = 500, .steps = 4};
  std::vector<std::int64_t> rows;
  for (std::int64_t step = 0; step < 6; ++step) rows.push_back(linear.rows_at(step));
  EXPECT_THAT(rows, ElementsAre(100, 200, 300, 400, 500, 500));
  const LengthSchedule doubling{
      .first = 1024, .last = 65'536, .steps = 6, .growth = LengthSchedule::Growth::kGeometric};
  rows.clear();
  for (std::int64_t step = 0; step < 8; ++step) rows.push_back(doubling.rows_at(step));
  EXPECT_THAT(rows, ElementsAre(1024, 2048, 4096, 8192, 16'384, 32'768, 65'536, 65'536));
  EXPECT_EQ((LengthSchedule{.first = 50, .last = 10, .steps = 2}.rows_at(1)), 30);
  EXPECT_EQ((LengthSchedule{.first = 50, .last = 10}.rows_at(0)), 10);
  EXPECT_EQ((LengthSchedule{.first = 50, .last = 10}.longest()), 50);
}

TEST(LengthScheduleTest, RefusesLengthsThatNoBankHas) {
  const auto refused = [](const LengthSchedule& schedule, std::int64_t step) {
    EXPECT_THROW((void)schedule.rows_at(step), ConfigError);
  };
  refused({.first = 0, .last = 10}, 0);
  refused({.first = 10, .last = 0}, 0);
  refused({.first = 10, .last = 10, .steps = -1}, 0);
  refused({.first = 10, .last = 10}, -1);
}

}  // namespace
}  // namespace spillway::queue::bank_resize_test
