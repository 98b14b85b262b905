// Placement never changes a result: weights after 50 steps, bit for bit those of plain LibTorch.
#include <gtest/gtest.h>

#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>

#include "optimizer/training.hpp"
#include "support/temp_dir.hpp"

namespace spillway::test::same_numbers_test {
namespace {

// One wrapped optimizer among several that take the same steps.
struct Run {
  Home home;
  TensorGroups weights;
  std::unique_ptr<Optimizer> optimizer;
};

void expect_budget_held(const Run& run) {
  const StatePlacement placed = run.optimizer->placement();
  SCOPED_TRACE(run.home.name);
  if (run.home.device != StateDevice::kNvme || placed.state_bytes == 0) {
    EXPECT_EQ(placed.disk_bytes, 0U);
    return;
  }
  EXPECT_EQ(placed.resident_bytes == 0, run.home.percent == 0);
  EXPECT_EQ(placed.disk_bytes == 0, run.home.percent == 100);
}

// Takes all runs through the same steps beside a plain optimizer and compares the weights at the end.
void compare(const Recipe& recipe, const TensorGroups& start, std::int64_t largest_numel, std::uint64_t sub_group_numel,
             const std::vector<Home>& homes, std::int64_t steps = 50) {
  SCOPED_TRACE(recipe.name);
  const TempDir folder("same_numbers");
  const Gradients gradients(largest_numel);
  const TensorGroups plain_weights = clone(start);
  const auto plain = recipe.make(plain_weights);
  std::vector<Run> runs;
  for (const Home& home : homes) {
    Run& run = runs.emplace_back(Run{home, clone(start), nullptr});
    run.optimizer = wrap(recipe.make(run.weights), config_for(home, recipe, start, folder.path(), sub_group_numel));
    expect_budget_held(run);
  }
  for (std::int64_t step = 0; step < steps; ++step) {
    gradients.give(plain_weights, step);
    plain->step();
    for (Run& run : runs) {
      run.optimizer->zero_grad();  // Reads ahead, and for other sub-groups than those whose turn it will be.
      gradients.give(run.weights, step);
      run.optimizer->step();
    }
  }
  EXPECT_NE(differences(start, plain_weights), "") << "the steps changed nothing";
  for (const Run& run : runs) {
    EXPECT_EQ(differences(run.weights, plain_weights), "") << run.home.name;
  }
}

std::vector<Home> homes_here(const TempDir& folder) {
  std::vector<Home> homes = all_homes();
  if (const std::string refusal = io_uring_refusal(folder.path()); !refusal.empty()) {
    std::printf("[   note   ] without io_uring: %s\n", refusal.c_str());
    std::erase_if(homes, [](const Home& home) { return home.engine == offload::EngineChoice::kIoUring; });
  }
  return homes;
}

TEST(SameNumbers, WithEveryCombinationOfOptions) {
  const TempDir folder("same_numbers");
  const TensorGroups start = odd_parameters();
  for (const Recipe& recipe : all_option_combinations()) {
    compare(recipe, start, 512, 100, homes_here(folder));
  }
}

// All five take 50 steps above; here the three that users have most of, so that the others may stop earlier.
std::int64_t steps_of(const Recipe& recipe) { return recipe.name == "RMSprop" || recipe.name == "Adagrad" ? 12 : 50; }

class SameNumbersOfAnMlp : public ::testing::TestWithParam<Recipe> {};

TEST_P(SameNumbersOfAnMlp, WhereverTheStateLives) {
  at::set_num_threads(1);  // Its threads spin: beside other tests two of them take ten times as long as one.
  const TempDir folder("same_numbers");
  compare(GetParam(), mlp_parameters(), 1 << 20, 1 << 20, homes_here(folder), steps_of(GetParam()));
}

TEST(SameNumbers, WithSeveralThreadsOfAten) {
  at::set_num_threads(3);
  compare(adamw(), mlp_parameters(), 1024 * 1024, 1 << 20,
          {{"host", StateDevice::kCpu}, {"threads", StateDevice::kNvme, offload::EngineChoice::kThreads, 0}}, 3);
}

INSTANTIATE_TEST_SUITE_P(Kinds, SameNumbersOfAnMlp, ::testing::ValuesIn(one_of_each_kind()),
                         [](const auto& instance) { return instance.param.name; });

}  // namespace
}  // namespace spillway::test::same_numbers_test
