#pragma once

#include <span>
#include <vector>

#include <spillway/distributed/collective.hpp>

namespace spillway::distributed {

/// A world of one: every call returns at once, without store or sockets. Arguments are checked as in a larger world.
class SingleProcess final : public Collective {
 public:
  [[nodiscard]] int rank() const noexcept override { return 0; }
  [[nodiscard]] int world_size() const noexcept override { return 1; }
  void all_reduce(at::Tensor& tensor, Reduction reduction) override;
  [[nodiscard]] std::vector<at::Tensor> all_gather(const at::Tensor& tensor) override;
  void broadcast(at::Tensor& tensor, int root) override;
  [[nodiscard]] std::vector<at::Tensor> all_to_all(std::span<const at::Tensor> outgoing) override;
  void barrier() override {}
};

}  // namespace spillway::distributed
