#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include <spillway/optimizer/sharded_optimizer.hpp>

namespace spillway::optimizer {

/// What any number of ranks saved of one optimizer's state with visit_state(), from which any other number takes it up:
/// a piece that no rank had is put together from those that were saved, bit for bit. Only what is asked for is read.
/// Not thread-safe.
class SavedPieces {
 public:
  /// Elements of a saved tensor, from `first` on in the order in which it was saved, on the CPU: [count].
  using Read = std::function<at::Tensor(std::int64_t first, std::int64_t count)>;

  /// @param name  as visit_state() gave it. A second one of a name is another rank's copy, and passed over.
  /// @param read  is valid as long as this lives.
  void add(const std::string& name, std::int64_t numel, at::ScalarType dtype, Read read);
  /// For Optimizer::restore_state. Undefined where what was saved does not have all of it. @throws what reading throws.
  [[nodiscard]] at::Tensor read(const StatePiece& piece) const;

 private:
  struct Saved {
    std::int64_t begin = 0;  // In the parameter's elements; end is -1 for all of them.
    std::int64_t end = -1;
    std::int64_t numel = 0;
    at::ScalarType dtype = at::kFloat;
    Read read;
  };
  [[nodiscard]] at::Tensor assemble(const std::vector<const Saved*>& pieces, const StatePiece& wanted) const;

  std::map<std::string, std::vector<Saved>> saved_;  // By parameter and field: "0/3.exp_avg".
};

}  // namespace spillway::optimizer
