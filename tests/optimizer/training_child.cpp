// A child that trains made-up parameters, for tests that look at a process from outside.
//   --child=training peak adamw|sgd none|cpu|nvme FOLDER HOST_BYTES   prints "peak_bytes N": its peak resident memory
//   --child=training forever FOLDER                                   prints "begin K", "end K" around each step
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <stdexcept>
#include <string>

#include <ATen/ops/full.h>
#include <torch/optim/adamw.h>
#include <torch/optim/sgd.h>

#include <spillway/optimizer/sharded_optimizer.hpp>

#include "support/child_role.hpp"

namespace spillway::test::training_child {
namespace {

std::vector<at::Tensor> parameters(std::int64_t count, std::int64_t numel) {
  std::vector<at::Tensor> result;
  for (std::int64_t i = 0; i < count; ++i) {
    result.push_back(at::full({numel}, 1.0F).requires_grad_());
    result.back().mutable_grad() = at::full({numel}, 0.5F);
  }
  return result;
}

OptimizerConfig streaming_config(const std::string& folder, std::uint64_t host_bytes) {
  OptimizerConfig config;
  config.nvme_path = folder;
  config.tiers_options.host_bytes = host_bytes;
  return config;
}

std::uint64_t peak_resident_bytes() {
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;) {
    if (word == "VmHWM:") {
      std::uint64_t kib = 0;
      status >> kib;
      return kib * 1024;
    }
  }
  throw std::runtime_error("/proc/self/status has no VmHWM");
}

// 16 Mi parameters: 64 MiB of weights, as much of gradients, and 128 MiB of state for AdamW.
void print_peak(const std::string& kind, const std::string& device, const std::string& folder,
                std::uint64_t host_bytes) {
  const auto weights = parameters(32, 1 << 19);
  std::unique_ptr<torch::optim::Optimizer> plain;
  if (kind == "sgd") {
    plain = std::make_unique<torch::optim::SGD>(weights, torch::optim::SGDOptions(0.1));
  } else {
    plain = std::make_unique<torch::optim::AdamW>(weights);
  }
  OptimizerConfig config = streaming_config(folder, host_bytes);
  config.state = device == "none" ? StateDevice::kNone : device == "cpu" ? StateDevice::kCpu : StateDevice::kNvme;
  const auto optimizer = wrap(std::move(plain), std::move(config));
  for (int step = 0; step < 3; ++step) {
    optimizer->step();
  }
  std::printf("peak_bytes %llu\nstate_bytes %llu\ndisk_bytes %llu\n",
              static_cast<unsigned long long>(peak_resident_bytes()),
              static_cast<unsigned long long>(optimizer->placement().state_bytes),
              static_cast<unsigned long long>(optimizer->placement().disk_bytes));
}

[[noreturn]] void train_forever(const std::string& folder) {
  const auto weights = parameters(8, 1 << 20);
  const auto optimizer = wrap(std::make_unique<torch::optim::AdamW>(weights), streaming_config(folder, 40 << 20));
  if (optimizer->placement().disk_bytes == 0) {
    throw std::runtime_error("nothing is on disk");
  }
  for (int step = 1;; ++step) {
    std::printf("begin %d\n", step);
    std::fflush(stdout);
    optimizer->step();
    std::printf("end %d\n", step);
    std::fflush(stdout);
  }
}

int play(ChildRole::Arguments words) {
  if (words.size() == 5 && words[0] == "peak") {
    print_peak(words[1], words[2], words[3], std::stoull(words[4]));
  } else if (words.size() == 2 && words[0] == "forever") {
    train_forever(words[1]);
  } else {
    std::fputs("usage: see the source\n", stderr);
    return 2;
  }
  return 0;
}

const ChildRole role("training", play);

}  // namespace
}  // namespace spillway::test::training_child
