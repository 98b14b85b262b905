#include <gtest/gtest.h>

#include "distributed/eight_weights.hpp"
#include "distributed/ranks.hpp"
#include "support/temp_dir.hpp"
#include "system/ranks_wrap.hpp"

namespace spillway::test::ranks_wrap_test {
namespace {

TEST(WrappedRanks, EndAtTheWeightsOfAccumulationWithStateOnNvmeOrInMemory) {
  const TempDir folder;
  const at::Tensor in_memory = eight_weights_accumulated();
  const at::Tensor on_nvme = eight_weights_accumulated(sgd_with_state_on_nvme(folder.path()));
  EXPECT_EQ(to_four_decimals(on_nvme), kEightWeights);
  EXPECT_EQ(to_hex_floats(on_nvme), to_hex_floats(in_memory));

  RankProcesses ranks(SPILLWAY_RANKS_WRAP_PROGRAM, {folder.path()}, 2);
  for (const Outcome& outcome : ranks.wait()) {
    EXPECT_EQ(outcome.exit_status, 0) << outcome.error;
    EXPECT_EQ(outcome.output, to_hex_floats(in_memory) + "\n");
  }
}

}  // namespace
}  // namespace spillway::test::ranks_wrap_test
