#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <gtest/gtest.h>

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

/// A gradient as LibTorch's operations on a float32 `.grad` would leave it.
[[nodiscard]] float scaled(float gradient, const GradientScale& scale);

/// Every combination of types that kernels know, with its name.
[[nodiscard]] const std::vector<KernelTypes>& all_types();
[[nodiscard]] std::string name_of(const KernelTypes& types);

/// |got - exact| in units of the last place of a float as large as `scale`.
[[nodiscard]] double ulps(double got, double exact, double scale);
/// Half a unit in the last place of a published weight of this size: what its own rounding may add.
[[nodiscard]] double rounding_of(WeightForm form, double value);

/// Updates a problem of every type by every case on every instruction set; no weight is off by more than 4 ulp of
/// max(|w|, |Δw|) beside the rounding of a published weight. @param run  (Problem&, case, split, threads)
/// @param exact  (case, problem before, element) -> the new weight in float64.
template <typename Case, typename Run, typename Exact>
void expect_within_four_ulp(const std::vector<Case>& cases, Run run, Exact exact) {
  double worst = 0.0;
  for (const std::string& set : kernel_instruction_sets()) {
    const InstructionSet use(set);
    for (const KernelTypes& types : all_types()) {
      for (const Case& c : cases) {
        const Problem before(types, 3001, 17);
        Problem after = before;
        run(after, c, 3001, 1);
        for (std::size_t i = 0; i < before.numel; ++i) {
          const double old = before.weight_at(i);
          const double wanted = exact(c, before, i);
          const double rounding = rounding_of(types.weight, after.weight_at(i));
          const double error = std::max(0.0, std::abs(after.weight_at(i) - wanted) - rounding);
          const double in_ulps = ulps(error, 0.0, std::max(std::abs(old), std::abs(wanted - old)));
          ASSERT_LE(in_ulps, 4.0) << set << ", " << name_of(types) << ", element " << i;
          worst = std::max(worst, in_ulps);
        }
      }
    }
  }
  testing::Test::RecordProperty("worst_ulp", std::to_string(worst));
}

/// The same bits come out wherever the tensor is split, on three threads, on every instruction set.
template <typename Case, typename Run>
void expect_the_same_bits_however_split(const std::vector<Case>& cases, Run run) {
  for (const KernelTypes& types : all_types()) {
    for (const Case& c : cases) {
      Problem expected(types, 131, 23);
      run(expected, c, 131, 1);
      for (const std::string& set : kernel_instruction_sets()) {
        const InstructionSet use(set);
        for (const std::size_t split : {0U, 1U, 7U, 8U, 64U, 100U}) {
          Problem problem(types, 131, 23);
          run(problem, c, split, 3);
          ASSERT_TRUE(problem.same_bits(expected)) << set << ", " << name_of(types) << ", split at " << split;
        }
      }
    }
  }
}

}  // namespace spillway::optimizer::kernel_test
