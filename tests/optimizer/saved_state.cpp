#include "optimizer/saved_state.hpp"

#include <sstream>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include <torch/serialize/archive.h>

namespace spillway::test {

SavedState save_state(Optimizer& optimizer) {
  SavedState saved;
  std::vector<std::string> listed;
  optimizer.list_state([&](const std::string& name, const at::Tensor& /*tensor*/) { listed.push_back(name); });
  std::vector<std::string> visited;
  optimizer.visit_state([&](const std::string& name, const at::Tensor& tensor) {
    visited.push_back(name);
    saved.tensors[name] = tensor.clone();
  });
  EXPECT_EQ(visited, listed);
  EXPECT_EQ(visited.size(), saved.tensors.size());
  std::ostringstream stream;
  torch::serialize::OutputArchive archive;
  optimizer.save_counters(archive);
  archive.save_to(stream);
  saved.counters = std::move(stream).str();
  return saved;
}

void restore_state(Optimizer& optimizer, const SavedState& saved) {
  std::istringstream stream(saved.counters);
  torch::serialize::InputArchive archive;
  archive.load_from(stream);
  optimizer.load_counters({&archive, 1});
  optimizer.restore_state([&](const optimizer::StatePiece& piece) {
    const auto found = saved.tensors.find(piece.name);
    return found == saved.tensors.end() ? at::Tensor() : found->second;
  });
}

}  // namespace spillway::test
