#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>

#include <torch/optim/optimizer.h>

#include <spillway/optimizer/sharded_optimizer.hpp>

#include "optimizer/training.hpp"
#include "support/temp_dir.hpp"

namespace spillway::test {

/// A plain optimizer and a wrapped one, whose state streams from disk, over equal weights.
class Wrapped : public ::testing::Test {
 protected:
  void start(const Recipe& recipe) {
    plain_weights_ = odd_parameters();
    weights_ = odd_parameters();
    plain_ = recipe.make(plain_weights_);
    wrap_now(recipe.make(weights_));
  }

  void wrap_now(std::unique_ptr<torch::optim::Optimizer> optimizer) {
    optimizer_ = wrap(std::move(optimizer), streaming_config());
    ASSERT_GT(optimizer_->placement().disk_bytes, 0U);
  }

  OptimizerConfig streaming_config() const {
    OptimizerConfig config;
    config.nvme_path = folder_.path().string();
    config.sub_group_numel = 200;
    config.buffer_count = 2;
    config.tiers_options.engine = offload::EngineChoice::kThreads;
    config.tiers_options.log = [](const std::string&) {};
    return config;
  }

  void step_both(std::int64_t steps = 1) {
    for (; steps > 0; --steps, ++step_) {
      gradients_.give(plain_weights_, step_);
      gradients_.give(weights_, step_);
      plain_->step();
      optimizer_->step();
    }
  }

  void expect_equal() const { EXPECT_EQ(differences(weights_, plain_weights_), ""); }

  TempDir folder_{"wrap"};
  Gradients gradients_{512};
  TensorGroups plain_weights_;
  TensorGroups weights_;
  std::unique_ptr<torch::optim::Optimizer> plain_;
  std::unique_ptr<Optimizer> optimizer_;
  std::int64_t step_ = 0;
};

}  // namespace spillway::test
