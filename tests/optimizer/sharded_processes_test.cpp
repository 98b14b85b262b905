// Sharded training over Gloo, each rank a process.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <signal.h>

#include <chrono>
#include <cstdint>
#include <exception>
#include <iostream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/sum.h>
#include <ATen/ops/zeros.h>

#include <spillway/distributed/process_group.hpp>
#include <spillway/optimizer/sharded_optimizer.hpp>

#include "distributed/eight_weights.hpp"
#include "distributed/ranks.hpp"
#include "support/child_role.hpp"
#include "support/temp_dir.hpp"

namespace spillway::test::sharded_processes_test {
namespace {

using ::testing::HasSubstr;

constexpr std::chrono::seconds kTimeout{30};

/// One rank: the words are what it does and a folder for swap files. Prints the weights at the end.
int train(const std::string& scenario, const std::string& folder) {
  at::set_num_threads(1);
  const auto environment = distributed::read_rank_environment();
  const auto exchange = distributed::connect(environment, {.timeout = kTimeout, .name = "gradients"});
  const auto agreement = distributed::connect(environment, {.timeout = kTimeout, .name = "agreement"});
  OptimizerConfig config;
  config.state = StateDevice::kNvme;
  config.gradients = environment.rank == 0 ? GradientDevice::kNvme : GradientDevice::kCpu;
  config.nvme_path = folder;
  config.gradient_group = exchange.get();
  config.agreement_group = agreement.get();
  config.tiers_options.engine = offload::EngineChoice::kThreads;
  config.tiers_options.log = [](const std::string&) {};
  if (scenario == "eight_weights") {
    std::cout << to_hex_floats(eight_weights_on_rank(*agreement, [&](std::vector<at::Tensor> parameters) {
      return std::unique_ptr<torch::optim::Optimizer>(wrap(plain_sgd(std::move(parameters)), config));
    })) << std::endl;
    return 0;
  }
  // Steps for ever, over buckets of a few parameters each.
  config.bucket_bytes = 1000;
  std::vector<at::Tensor> weights;
  for (const std::int64_t size : {300, 7, 500, 33, 129}) {
    weights.push_back(at::ones({size}).requires_grad_());
  }
  const auto optimizer = wrap(plain_sgd(weights), config);
  for (int step = 0;; ++step) {
    at::Tensor loss = at::zeros({});
    for (const at::Tensor& weight : weights) {
      loss = loss + (weight * weight).sum();
    }
    loss.backward();
    optimizer->clip_grad_norm_(1.0);
    optimizer->step();
    optimizer->zero_grad();
    if (step == 3) {
      std::cout << "training" << std::endl;
    }
  }
}

int play_rank(ChildRole::Arguments words) {
  try {
    return train(words[0], words[1]);
  } catch (const std::exception& error) {
    std::cerr << error.what() << std::endl;
    return 1;
  }
}

const ChildRole role("sharded_rank", play_rank);

TEST(ShardedProcesses, TwoRanksEqualTwoAccumulatedMicroBatchesBitForBit) {
  const TempDir folder("shards");
  RankProcesses ranks("sharded_rank", {"eight_weights", folder.path().string()}, 2);
  for (const Outcome& outcome : ranks.wait()) {
    EXPECT_EQ(outcome.exit_status, 0) << outcome.error;
    EXPECT_EQ(outcome.output, to_hex_floats(eight_weights_accumulated()) + "\n");
  }
}

TEST(ShardedProcesses, ARankThatIsKilledWhileItTrainsIsNamedByTheOthersAtOnce) {
  const TempDir folder("shards");
  RankProcesses ranks("sharded_rank", {"for_ever", folder.path().string()}, 3);
  for (int rank = 0; rank < 3; ++rank) {
    ranks.rank(rank).wait_for_output("training");
  }
  ranks.rank(1).signal(SIGKILL);
  const auto killed = std::chrono::steady_clock::now();
  for (const int rank : {0, 2}) {
    const Outcome outcome = ranks.rank(rank).wait();
    EXPECT_NE(outcome.exit_status, 0);
    EXPECT_THAT(outcome.error, HasSubstr("rank 1"));
  }
  EXPECT_LT(std::chrono::steady_clock::now() - killed, std::chrono::seconds(10));
}

}  // namespace
}  // namespace spillway::test::sharded_processes_test
