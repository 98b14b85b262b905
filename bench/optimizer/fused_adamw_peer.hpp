#pragma once

#include <cstdint>
#include <memory>

#include "kernel_streams.hpp"

namespace spillway::bench {

/// LibTorch's fused AdamW for the CPU, at::_fused_adamw_, on tensors that lie in the memory of a bench.
class FusedAdamwPeer {
 public:
  /// @param memory outlives this; weight, gradient and state have one type, as it wants them.
  FusedAdamwPeer(const AdamMemory& memory, std::uint64_t tensors);
  ~FusedAdamwPeer();
  void step();

 private:
  struct Lists;
  std::unique_ptr<Lists> lists_;
};

}  // namespace spillway::bench
