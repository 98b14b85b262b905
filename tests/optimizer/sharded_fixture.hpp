#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <torch/optim/adamw.h>
#include <torch/optim/sgd.h>

#include "optimizer/rank_training.hpp"
#include "support/temp_dir.hpp"

namespace spillway::test {

/// One rank of a test: its groups, and optimizers over them.
struct Rank {
  int number = 0;
  distributed::Collective* exchange = nullptr;
  distributed::Collective* agreement = nullptr;
  std::string folder;

  [[nodiscard]] OptimizerConfig config(GradientDevice gradients = GradientDevice::kCpu,
                                       StateDevice state = StateDevice::kCpu) const {
    OptimizerConfig config;
    config.gradients = gradients;
    config.state = state;
    config.nvme_path = folder;
    config.buffer_count = 2;
    config.gradient_group = exchange;
    config.agreement_group = agreement;
    config.tiers_options.engine = offload::EngineChoice::kThreads;
    config.tiers_options.log = [](const std::string&) {};
    return config;
  }
  [[nodiscard]] std::unique_ptr<Optimizer> sgd(Tensors parameters, double rate, const OptimizerConfig& config) const {
    return wrap(std::make_unique<torch::optim::SGD>(std::move(parameters), torch::optim::SGDOptions(rate)), config);
  }
  [[nodiscard]] std::unique_ptr<Optimizer> adamw(Tensors parameters, const OptimizerConfig& config) const {
    return wrap(std::make_unique<torch::optim::AdamW>(std::move(parameters), torch::optim::AdamWOptions(0.1)), config);
  }
};

/// Runs `body` for each rank on a thread of its own; an exception that leaves it is a failure.
inline void with_ranks(int world_size, const std::function<void(Rank& rank)>& body,
                       std::chrono::milliseconds timeout = std::chrono::seconds(60)) {
  const TempDir folder("ranks");
  on_ranks(world_size, timeout, [&](int number, auto* exchange, auto* agreement) {
    Rank rank{number, exchange, agreement, folder.path().string()};
    try {
      body(rank);
    } catch (const std::exception& error) {
      ADD_FAILURE() << "rank " << number << ": " << error.what();
    }
  });
}

/// What `action` throws, "" where it throws nothing.
template <typename Exception = Error>
std::string message_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const Exception& error) {
    return error.what();
  }
  return "";
}

}  // namespace spillway::test
