#include "kernel_problem.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include <spillway/optimizer/kernel_scalars.hpp>

#include "support/property.hpp"

namespace spillway::optimizer::kernel_test {
namespace {

template <typename T>
T read(const std::vector<std::byte>& memory, std::size_t i) {
  T value;
  std::memcpy(&value, memory.data() + i * sizeof(T), sizeof(T));
  return value;
}

template <typename T>
void append(std::vector<std::byte>& memory, T value) {
  const auto* bytes = reinterpret_cast<const std::byte*>(&value);
  memory.insert(memory.end(), bytes, bytes + sizeof(T));
}

float bfloat16_to_float(std::uint16_t bits) { return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16); }

std::uint16_t float_to_bfloat16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  return static_cast<std::uint16_t>((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16);
}

double element(ElementType type, const std::vector<std::byte>& memory, std::size_t i) {
  switch (type) {
    case ElementType::kFloat32:
      return read<float>(memory, i);
    case ElementType::kBFloat16:
      return bfloat16_to_float(read<std::uint16_t>(memory, i));
    default:
      return float16_to_float(read<std::uint16_t>(memory, i));
  }
}

void append(ElementType type, std::vector<std::byte>& memory, double value) {
  const auto rounded = static_cast<float>(value);
  switch (type) {
    case ElementType::kFloat32:
      return append(memory, rounded);
    case ElementType::kBFloat16:
      return append(memory, float_to_bfloat16(rounded));
    default:
      return append(memory, float_to_float16(rounded));
  }
}

void append_weight(Problem& problem, double value) {
  switch (problem.types.weight) {
    case WeightForm::kFloat32:
      return append(ElementType::kFloat32, problem.weight, value);
    case WeightForm::kBFloat16:
      return append(ElementType::kBFloat16, problem.weight, value);
    case WeightForm::kFloat16:
      return append(ElementType::kFloat16, problem.weight, value);
    case WeightForm::kMasterToBFloat16:
      append(ElementType::kFloat32, problem.master, value);
      return append(ElementType::kBFloat16, problem.weight, value);
    case WeightForm::kMasterToFloat16:
      append(ElementType::kFloat32, problem.master, value);
      return append(ElementType::kFloat16, problem.weight, value);
    case WeightForm::kBFloat16AndRemainder:
      const auto bits = std::bit_cast<std::uint32_t>(static_cast<float>(value));
      append(problem.weight, static_cast<std::uint16_t>((bits + 0x8000) >> 16));
      return append(problem.master, static_cast<std::uint16_t>(bits & 0xFFFF));
  }
}

double sign(test::Random& random) { return random.chance(1, 2) ? 1.0 : -1.0; }

}  // namespace

Problem::Problem(KernelTypes with_types, std::size_t with_numel, std::uint64_t seed)
    : types(with_types), numel(with_numel) {
  test::Random random(seed);
  for (std::size_t i = 0; i < numel; ++i) {
    const double g = sign(random) * std::pow(10.0, -4.0 + 5.0 * random.unit());
    const bool cancels = random.chance(1, 4);
    const double m = cancels ? -g / 9.0 * (1.0 + 1e-3 * random.unit()) : g * (2.0 * random.unit() - 1.0);
    const double v = g * g * (random.chance(1, 8) ? 0.0 : 2.0 * random.unit());
    const double w = sign(random) * (random.chance(1, 8) ? 0.0 : std::pow(10.0, -7.0 + 8.0 * random.unit()));
    append(types.gradient, gradient, g);
    append_weight(*this, w);
    append(types.state, state[0], m);
    append(types.state, state[1], v);
    append(types.state, state[2], v * 2.0 * random.unit());
  }
}

double Problem::gradient_at(std::size_t i) const { return element(types.gradient, gradient, i); }

double Problem::published_at(std::size_t i) const {
  switch (types.weight) {
    case WeightForm::kFloat32:
      return element(ElementType::kFloat32, weight, i);
    case WeightForm::kFloat16:
    case WeightForm::kMasterToFloat16:
      return element(ElementType::kFloat16, weight, i);
    default:
      return element(ElementType::kBFloat16, weight, i);
  }
}

double Problem::weight_at(std::size_t i) const {
  switch (types.weight) {
    case WeightForm::kMasterToBFloat16:
    case WeightForm::kMasterToFloat16:
      return element(ElementType::kFloat32, master, i);
    case WeightForm::kBFloat16AndRemainder: {
      const auto high = static_cast<std::uint32_t>(read<std::uint16_t>(weight, i)) << 16;
      return std::bit_cast<float>(high + static_cast<std::uint32_t>(read<std::int16_t>(master, i)));
    }
    default:
      return published_at(i);
  }
}

double Problem::state_at(std::size_t field, std::size_t i) const { return element(types.state, state[field], i); }

AdamTensor Problem::adam(const AdamStep& step, bool amsgrad, std::size_t begin, std::size_t end) {
  return {.numel = end - begin,
          .gradient = at(gradient, begin),
          .weight = at(weight, begin),
          .master = at(master, begin),
          .exp_avg = at(state[0], begin),
          .exp_avg_sq = at(state[1], begin),
          .max_exp_avg_sq = amsgrad ? at(state[2], begin) : nullptr,
          .step = &step};
}

SgdTensor Problem::sgd(const SgdStep& step, bool momentum, std::size_t begin, std::size_t end) {
  return {.numel = end - begin,
          .gradient = at(gradient, begin),
          .weight = at(weight, begin),
          .master = at(master, begin),
          .momentum_buffer = momentum ? at(state[0], begin) : nullptr,
          .step = &step};
}

AdagradTensor Problem::adagrad(const AdagradStep& step, std::size_t begin, std::size_t end) {
  return {.numel = end - begin,
          .gradient = at(gradient, begin),
          .weight = at(weight, begin),
          .master = at(master, begin),
          .sum = at(state[1], begin),
          .step = &step};
}

bool Problem::same_bits(const Problem& other) const {
  return gradient == other.gradient && weight == other.weight && master == other.master && state == other.state;
}

const std::vector<KernelTypes>& all_types() {
  static const std::vector<KernelTypes> all = [] {
    std::vector<KernelTypes> result;
    for (const auto gradient : {ElementType::kFloat32, ElementType::kBFloat16, ElementType::kFloat16}) {
      for (const auto weight :
           {WeightForm::kFloat32, WeightForm::kBFloat16, WeightForm::kFloat16, WeightForm::kMasterToBFloat16,
            WeightForm::kMasterToFloat16, WeightForm::kBFloat16AndRemainder}) {
        for (const auto state : {ElementType::kFloat32, ElementType::kBFloat16}) {
          result.push_back({gradient, weight, state});
        }
      }
    }
    return result;
  }();
  return all;
}

std::string name_of(const KernelTypes& types) {
  const std::array elements{"fp32", "bf16", "fp16"};
  const std::array weights{"fp32", "bf16", "fp16", "fp32 to bf16", "fp32 to fp16", "bf16 and remainder"};
  return std::string("gradient ") + elements[static_cast<std::size_t>(types.gradient)] + ", weight " +
         weights[static_cast<std::size_t>(types.weight)] + ", state " + elements[static_cast<std::size_t>(types.state)];
}

float scaled(float gradient, const GradientScale& scale) {
  gradient /= static_cast<float>(scale.divisor);
  gradient *= static_cast<float>(scale.factor);
  gradient *= static_cast<float>(scale.clip_factor);
  return std::clamp(gradient, -static_cast<float>(scale.limit), static_cast<float>(scale.limit));
}

double ulps(double got, double exact, double scale) {
  const double magnitude = std::max(std::abs(scale), 0x1p-126);
  return std::abs(got - exact) / std::ldexp(1.0, std::ilogb(magnitude) - 23);
}

double rounding_of(WeightForm form, double value) {
  const double magnitude = std::abs(value);
  switch (form) {
    case WeightForm::kBFloat16:
      return std::ldexp(1.0, std::ilogb(std::max(magnitude, 0x1p-126)) - 8);
    case WeightForm::kFloat16:
      return std::ldexp(1.0, std::ilogb(std::max(magnitude, 0x1p-14)) - 11);
    default:
      return 0.0;
  }
}

}  // namespace spillway::optimizer::kernel_test
