#include <spillway/app/config/batch_sizes.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <spillway/offload/error.hpp>

#include "support/errors.hpp"

namespace spillway::app::batch_sizes_test {
namespace {

using ::testing::HasSubstr;

constexpr std::uint64_t kRanks = 3;
constexpr std::uint64_t kDefaultMicro = 7;

void expect_sizes(const BatchSizes& given, const BatchSizes& wanted) {
  const BatchSizes got = resolve_batch_sizes(given, kRanks, kDefaultMicro);
  EXPECT_EQ(got.train, wanted.train);
  EXPECT_EQ(got.micro, wanted.micro);
  EXPECT_EQ(got.accumulation, wanted.accumulation);
}

TEST(BatchSizes, DerivesTheThirdFromAnyTwo) {
  const BatchSizes all{.train = 24, .micro = 4, .accumulation = 2};
  expect_sizes({.micro = 4, .accumulation = 2}, all);
  expect_sizes({.train = 24, .accumulation = 2}, all);
  expect_sizes({.train = 24, .micro = 4}, all);
  expect_sizes(all, all);
}

TEST(BatchSizes, TakesOneForTheOthersWhereOneIsGiven) {
  expect_sizes({.train = 24}, {.train = 24, .micro = 8, .accumulation = 1});
  expect_sizes({.micro = 4}, {.train = 12, .micro = 4, .accumulation = 1});
  expect_sizes({.accumulation = 2}, {.train = 42, .micro = 7, .accumulation = 2});
  expect_sizes({}, {.train = 21, .micro = 7, .accumulation = 1});
}

TEST(BatchSizes, RefusesAContradictionAndNamesAllThree) {
  EXPECT_THAT(message_of<ConfigError>([] {
                (void)resolve_batch_sizes({.train = 25, .micro = 4, .accumulation = 2}, kRanks, kDefaultMicro);
              }),
              AllOf(HasSubstr("train_batch_size: 25"), HasSubstr("micro_batch_size_per_gpu 4"),
                    HasSubstr("accumulation_steps 2"), HasSubstr("= 24")));
}

TEST(BatchSizes, RefusesWhatDoesNotDivide) {
  const auto resolve = [](const BatchSizes& given) { (void)resolve_batch_sizes(given, kRanks, kDefaultMicro); };
  EXPECT_THAT(message_of<ConfigError>([&] { resolve({.train = 25}); }), HasSubstr("train_batch_size: 25"));
  EXPECT_THROW(resolve({.train = 24, .micro = 5}), ConfigError);
  EXPECT_THROW(resolve({.train = 24, .accumulation = 5}), ConfigError);
}

TEST(BatchSizes, RefusesABatchThatIsSmallerThanTheRanks) {
  EXPECT_THROW((void)resolve_batch_sizes({.train = 2}, kRanks, kDefaultMicro), ConfigError);
}

}  // namespace
}  // namespace spillway::app::batch_sizes_test
