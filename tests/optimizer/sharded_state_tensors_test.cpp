// The state of shards tensor by tensor: each rank saves what it owns, and takes it up again.
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>

#include <spillway/offload/error.hpp>

#include "optimizer/saved_state.hpp"
#include "optimizer/sharded_fixture.hpp"

namespace spillway::test::sharded_state_tensors_test {
namespace {

using ::testing::HasSubstr;

/// One that is cut between two ranks, and two that are not.
Tensors parameters() {
  Tensors list;
  for (const std::int64_t numel : {70'000, 300, 5}) list.push_back(at::full({numel}, 1.0F).requires_grad_());
  return list;
}

Tensors clone(const Tensors& list) {
  Tensors copies;
  for (const at::Tensor& tensor : list) copies.push_back(tensor.detach().clone().requires_grad_());
  return copies;
}

void advance(Optimizer& optimizer, const Tensors& weights, int rank, int begin, int end) {
  for (int step = begin; step < end; ++step) {
    at::Tensor loss;
    for (const at::Tensor& weight : weights) {
      const at::Tensor term = weight.mul(at::arange(weight.numel(), at::kFloat).add(step + 2 * rank).sin()).sum();
      loss = loss.defined() ? loss.add(term) : term;
    }
    loss.backward();
    optimizer.step();
  }
}

bool equal(const Tensors& a, const Tensors& b) {
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (!a[i].equal(b[i])) return false;
  }
  return true;
}

class ShardedStateTensors : public ::testing::TestWithParam<StateDevice> {};

TEST_P(ShardedStateTensors, CarryARunOnAsManyRanks) {
  with_ranks(2, [](const Rank& rank) {
    const OptimizerConfig config = rank.config(GradientDevice::kCpu, GetParam());
    const Tensors weights = parameters();
    const auto first = rank.adamw(weights, config);
    advance(*first, weights, rank.number, 0, 3);
    const SavedState saved = save_state(*first);
    EXPECT_LT(saved.counters.size(), 20'000U) << "the archive of the counters holds tensors";
    EXPECT_EQ(saved.tensors.count(rank.number == 0 ? "0/0[0:32768].exp_avg" : "0/0[32768:70000].exp_avg") +
                  saved.tensors.count(rank.number == 0 ? "0/0[0:49152].exp_avg" : "0/0[49152:70000].exp_avg") +
                  saved.tensors.count(rank.number == 0 ? "0/0[0:40960].exp_avg" : "0/0[40960:70000].exp_avg"),
              1U)
        << saved.tensors.begin()->first;
    const Tensors carried = clone(weights);
    const Tensors forgotten = clone(weights);
    advance(*first, weights, rank.number, 3, 6);

    const auto second = rank.adamw(carried, config);
    restore_state(*second, saved);
    advance(*second, carried, rank.number, 3, 6);
    EXPECT_TRUE(equal(carried, weights)) << "rank " << rank.number;

    const auto fresh = rank.adamw(forgotten, config);  // The control.
    advance(*fresh, forgotten, rank.number, 3, 6);
    EXPECT_FALSE(equal(forgotten, weights));
  });
}

TEST_P(ShardedStateTensors, DoNotFitIntoShardsOfOtherSizes) {
  with_ranks(2, [](const Rank& rank) {
    OptimizerConfig config = rank.config(GradientDevice::kCpu, GetParam());
    const Tensors weights = parameters();
    const auto first = rank.adamw(weights, config);
    advance(*first, weights, rank.number, 0, 2);
    const SavedState saved = save_state(*first);
    config.shard_weights = {1.0, 4.0};
    const auto second = rank.adamw(clone(weights), config);
    EXPECT_THAT(message_of([&] { restore_state(*second, saved); }), HasSubstr("of another"));
  });
}

INSTANTIATE_TEST_SUITE_P(Devices, ShardedStateTensors,
                         ::testing::Values(StateDevice::kNone, StateDevice::kCpu, StateDevice::kNvme));

}  // namespace
}  // namespace spillway::test::sharded_state_tensors_test
