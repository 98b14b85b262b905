#include <spillway/distributed/collective.hpp>

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include <ATen/core/Tensor.h>
#include <ATen/ops/ones.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <spillway/distributed/process_group.hpp>
#include <spillway/distributed/thread_collective.hpp>
#include <spillway/offload/error.hpp>

#include "distributed/conformance.hpp"
#include "distributed/ranks.hpp"

namespace spillway::test::collective_test {
namespace {

using distributed::Collective;
using distributed::Reduction;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr std::chrono::milliseconds kPatience{30'000};
constexpr std::chrono::milliseconds kShortDeadline{50};

class Conformance : public ::testing::TestWithParam<std::tuple<int, Claim>> {};

TEST_P(Conformance, HoldsForThreads) {
  const auto& [world_size, claim] = GetParam();
  on_rank_threads(distributed::make_thread_group(world_size, kPatience), claim.check);
}

std::string name_of_case(const ::testing::TestParamInfo<std::tuple<int, Claim>>& info) {
  return std::get<1>(info.param).name + std::string("On") + std::to_string(std::get<0>(info.param));
}

INSTANTIATE_TEST_SUITE_P(Threads, Conformance,
                         ::testing::Combine(::testing::Values(1, 2, 3), ::testing::ValuesIn(conformance_suite())),
                         name_of_case);

class SingleProcess : public ::testing::TestWithParam<Claim> {};

TEST_P(SingleProcess, Conforms) {
  // What a user gets without a launcher's variables.
  const auto group = distributed::connect(distributed::RankEnvironment{});
  GetParam().check(*group);
}

INSTANTIATE_TEST_SUITE_P(World, SingleProcess, ::testing::ValuesIn(conformance_suite()),
                         [](const auto& each) { return std::string(each.param.name); });

struct NamedCall {
  const char* name;
  std::function<void(Collective&)> make;
};

class Deadline : public ::testing::TestWithParam<NamedCall> {};

TEST_P(Deadline, NamesOperationRankAndTimeOnEveryRankThatWaits) {
  auto ends = distributed::make_thread_group(3, kShortDeadline);
  const auto absent = std::move(ends[1]);  // Alive, and never calls.

  on_rank_threads(std::move(ends), [](Collective& group) {
    try {
      GetParam().make(group);
      ADD_FAILURE() << "no error";
    } catch (const TimedOut& error) {
      EXPECT_THAT(error.what(), AllOf(HasSubstr(GetParam().name), HasSubstr("rank 1 did not arrive"),
                                      HasSubstr("deadline of 50 ms"), Not(HasSubstr("ranks"))));
    }
  });
}

INSTANTIATE_TEST_SUITE_P(
    Threads, Deadline,
    ::testing::Values(NamedCall{"all_reduce",
                                [](Collective& group) {
                                  at::Tensor tensor = at::ones({3});
                                  group.all_reduce(tensor, Reduction::Sum);
                                }},
                      NamedCall{"all_gather", [](Collective& group) { (void)group.all_gather(at::ones({3})); }},
                      NamedCall{"broadcast",
                                [](Collective& group) {
                                  at::Tensor tensor = at::ones({3});
                                  group.broadcast(tensor, 0);
                                }},
                      NamedCall{"all_to_all",
                                [](Collective& group) { (void)group.all_to_all(std::vector(3, at::ones({3}))); }},
                      NamedCall{"barrier", [](Collective& group) { group.barrier(); }}),
    [](const auto& each) { return std::string(each.param.name); });

TEST(Deadline, NamesAllRanksThatAreMissing) {
  auto ends = distributed::make_thread_group(3, kShortDeadline);
  try {
    ends[0]->barrier();
    ADD_FAILURE() << "no error";
  } catch (const TimedOut& error) {
    EXPECT_THAT(error.what(), HasSubstr("ranks 1, 2 did not arrive"));
  }
}

TEST(ThreadGroup, NoticesARankThatDies) {
  auto ends = distributed::make_thread_group(3, kPatience);
  ends[2].reset();

  on_rank_threads(std::move(ends), [](Collective& group) {
    for (int attempt = 0; attempt < 2; ++attempt) {  // Once found out, the error comes again.
      try {
        group.barrier();
        ADD_FAILURE() << "no error";
      } catch (const PeerLost& error) {
        EXPECT_THAT(error.what(), AllOf(HasSubstr("barrier (call 1"), HasSubstr("lost rank 2")));
      }
    }
  });
}

TEST(ThreadGroup, BarrierHoldsEveryoneUntilTheLastArrives) {
  constexpr int kRanks = 3;
  std::atomic<int> arrived = 0;
  on_rank_threads(distributed::make_thread_group(kRanks, kPatience), [&](Collective& group) {
    ++arrived;
    group.barrier();
    EXPECT_EQ(arrived.load(), kRanks);
  });
}

}  // namespace
}  // namespace spillway::test::collective_test
