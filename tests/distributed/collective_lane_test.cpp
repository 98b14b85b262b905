#include <spillway/distributed/collective_lane.hpp>

#include <chrono>
#include <future>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>
#include <ATen/ops/full.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <spillway/distributed/thread_collective.hpp>
#include <spillway/offload/error.hpp>

#include "distributed/ranks.hpp"
#include "support/errors.hpp"

namespace spillway::test::collective_lane_test {
namespace {

using distributed::Collective;
using distributed::CollectiveLane;
using ::testing::HasSubstr;

constexpr std::chrono::milliseconds kPatience{30'000};

TEST(CollectiveLane, MakesCallsInOrderBesideTheThreadThatComputes) {
  test::on_rank_threads(distributed::make_thread_group(3, kPatience), [](Collective& group) {
    std::vector<std::int64_t> sums;
    CollectiveLane lane;
    std::promise<void> computed;
    lane.submit([&] { computed.get_future().wait(); });  // Fulfilled below: submit does not wait for it.
    for (int call = 0; call < 20; ++call) {
      lane.submit([&, call] {
        at::Tensor tensor = at::full({5}, call * (group.rank() + 1), at::kLong);
        group.all_reduce(tensor, distributed::Reduction::Sum);
        sums.push_back(tensor[4].item<std::int64_t>());
      });
    }
    computed.set_value();
    lane.wait();
    ASSERT_EQ(sums.size(), 20U);
    for (std::int64_t call = 0; call < 20; ++call) {
      EXPECT_EQ(sums[static_cast<std::size_t>(call)], call * 6);
    }
  });
}

TEST(CollectiveLane, KeepsTheFirstErrorAndPassesOverWhatIsBehindIt) {
  CollectiveLane lane;
  bool ran = false;
  lane.submit([] { throw Error("the first"); });
  lane.submit([&] {
    ran = true;
    throw Error("the second");
  });
  for (int attempt = 0; attempt < 2; ++attempt) {
    EXPECT_THAT(message_of<Error>([&] { lane.wait(); }), HasSubstr("the first"));
  }
  EXPECT_FALSE(ran);
}

TEST(CollectiveLane, ThatIsDestroyedEndsWhatIsQueued) {
  int ran = 0;
  {
    CollectiveLane lane;
    for (int task = 0; task < 100; ++task) {
      lane.submit([&] { ++ran; });
    }
  }
  EXPECT_EQ(ran, 100);
}

TEST(CollectiveLane, GivesWhoeverWaitsTheNameOfARankThatDied) {
  auto ends = distributed::make_thread_group(2, kPatience);
  ends[1].reset();
  CollectiveLane lane;
  lane.submit([&] { ends[0]->barrier(); });
  EXPECT_THAT(message_of<PeerLost>([&] { lane.wait(); }), HasSubstr("lost rank 1"));
}

}  // namespace
}  // namespace spillway::test::collective_lane_test
