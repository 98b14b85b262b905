#include "system/ranks_wrap.hpp"

#include <utility>

#include <spillway/optimizer/sharded_optimizer.hpp>

namespace spillway::test {

MakeOptimizer sgd_with_state_on_nvme(const std::filesystem::path& nvme_path) {
  return [nvme_path](std::vector<at::Tensor> parameters) -> std::unique_ptr<torch::optim::Optimizer> {
    OptimizerConfig config;
    config.state = StateDevice::kNvme;
    config.nvme_path = nvme_path;
    return wrap(plain_sgd(std::move(parameters)), std::move(config));
  };
}

}  // namespace spillway::test
