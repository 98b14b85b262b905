#pragma once

#include <map>
#include <string>

#include <ATen/core/Tensor.h>

#include <spillway/optimizer/sharded_optimizer.hpp>

namespace spillway::test {

/// What a checkpoint keeps of a wrapped optimizer.
struct SavedState {
  std::map<std::string, at::Tensor> tensors;
  std::string counters;
};

/// Expects that what is listed is what is shown, in that order.
SavedState save_state(Optimizer& optimizer);
void restore_state(Optimizer& optimizer, const SavedState& saved);

}  // namespace spillway::test
