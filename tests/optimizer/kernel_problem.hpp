#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <spillway/optimizer/adagrad_kernel.hpp>
#include <spillway/optimizer/adam_kernel.hpp>
#include <spillway/optimizer/kernel_types.hpp>
#include <spillway/optimizer/sgd_kernel.hpp>

namespace spillway::optimizer::kernel_test {

/// Kernels use this instruction set while it lives.
struct InstructionSet {
  explicit InstructionSet(const std::string& name) { use_kernel_instruction_set(name); }
  InstructionSet(const InstructionSet&) = delete;
  InstructionSet& operator=(const InstructionSet&) = delete;
  ~InstructionSet() { use_kernel_instruction_set(""); }
};

/// Memory of one tensor and its state in some form, filled with values that are hard on an update: weights around 0 and
/// far above the step, moments that nearly cancel with the gradient.
struct Problem {
  Problem(KernelTypes with_types, std::size_t with_numel, std::uint64_t seed);

  [[nodiscard]] double gradient_at(std::size_t i) const;
  /// With all the precision that its form has.
  [[nodiscard]] double weight_at(std::size_t i) const;
  /// The 16 or 32 bits that the user sees.
  [[nodiscard]] double published_at(std::size_t i) const;
  [[nodiscard]] double state_at(std::size_t field, std::size_t i) const;

  /// Elements [begin, end) of it.
  [[nodiscard]] AdamTensor adam(const AdamStep& step, bool amsgrad, std::size_t begin, std::size_t end);
  [[nodiscard]] SgdTensor sgd(const SgdStep& step, bool momentum, std::size_t begin, std::size_t end);
  [[nodiscard]] AdagradTensor adagrad(const AdagradStep& step, std::size_t begin, std::size_t end);

  [[nodiscard]] bool same_bits(const Problem& other) const;

  KernelTypes types;
  std::size_t numel;
  std::vector<std::byte> gradient, weight, master;
  std::array<std::vector<std::byte>, 3> state;

 private:
  [[nodiscard]] void* at(std::vector<std::byte>& memory, std::size_t i) const {
    return memory.empty() ? nullptr : memory.data() + i * (memory.size() / numel);
  }
};

/// Every combination of types that kernels know, with its name.
[[nodiscard]] const std::vector<KernelTypes>& all_types();
[[nodiscard]] std::string name_of(const KernelTypes& types);

/// |got - exact| in units of the last place of a float as large as `scale`.
[[nodiscard]] double ulps(double got, double exact, double scale);
/// Half a unit in the last place of a published weight of this size: what its own rounding may add.
[[nodiscard]] double rounding_of(WeightForm form, double value);

}  // namespace spillway::optimizer::kernel_test
