// Ranks whose optimizer is wrapped.
#include <gtest/gtest.h>

#include <exception>
#include <filesystem>
#include <iostream>
#include <memory>
#include <utility>

#include <spillway/distributed/process_group.hpp>
#include <spillway/optimizer/sharded_optimizer.hpp>

#include "distributed/eight_weights.hpp"
#include "distributed/ranks.hpp"
#include "support/child_role.hpp"
#include "support/temp_dir.hpp"

namespace spillway::test::ranks_wrap_test {
namespace {

/// Makes the 8-weight example's optimizer with its momentum in a swap file in `nvme_path`.
MakeSgd sgd_with_state_on_nvme(const std::filesystem::path& nvme_path) {
  return [nvme_path](std::vector<at::Tensor> parameters) -> std::unique_ptr<torch::optim::Optimizer> {
    OptimizerConfig config;
    config.state = StateDevice::kNvme;
    config.nvme_path = nvme_path;
    return wrap(plain_sgd(std::move(parameters)), std::move(config));
  };
}

/// One of two ranks of the example, with the optimizer's state in the folder that is its argument.
int play_rank(ChildRole::Arguments words) {
  try {
    const auto group = distributed::connect(distributed::read_rank_environment());
    std::cout << to_hex_floats(eight_weights_on_rank(*group, sgd_with_state_on_nvme(words[0]))) << std::endl;
  } catch (const std::exception& error) {
    std::cerr << error.what() << std::endl;
    return 1;
  }
  return 0;
}

const ChildRole role("wrapped_rank", play_rank);

TEST(WrappedRanks, EndAtTheWeightsOfAccumulationWithStateOnNvmeOrInMemory) {
  const TempDir folder;
  const at::Tensor in_memory = eight_weights_accumulated();
  const at::Tensor on_nvme = eight_weights_accumulated(sgd_with_state_on_nvme(folder.path()));
  EXPECT_EQ(to_four_decimals(on_nvme), kEightWeights);
  EXPECT_EQ(to_hex_floats(on_nvme), to_hex_floats(in_memory));

  RankProcesses ranks("wrapped_rank", {folder.path()}, 2);
  for (const Outcome& outcome : ranks.wait()) {
    EXPECT_EQ(outcome.exit_status, 0) << outcome.error;
    EXPECT_EQ(outcome.output, to_hex_floats(in_memory) + "\n");
  }
}

}  // namespace
}  // namespace spillway::test::ranks_wrap_test
