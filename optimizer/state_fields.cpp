#include <spillway/optimizer/state_fields.hpp>

#include <array>
#include <cstdlib>
#include <typeinfo>

#include <ATen/ops/full_like.h>
#include <torch/optim/adagrad.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/rmsprop.h>
#include <torch/optim/sgd.h>

#include <spillway/offload/check.hpp>
#include <spillway/optimizer/lars.hpp>

namespace spillway::optimizer {
namespace {

// Adam and AdamW differ in the update alone. Both start from zeros like the parameter and step count 0.
template <typename Options, typename State>
class AdamFields final : public StateFields {
 public:
  explicit AdamFields(std::string_view optimizer) : optimizer_(optimizer) {}

  std::string_view optimizer() const noexcept override { return optimizer_; }

  std::span<const std::string_view> names() const noexcept override {
    static constexpr std::array<std::string_view, 3> kNames{"exp_avg", "exp_avg_sq", "max_exp_avg_sq"};
    return kNames;
  }

  FieldMask needed(const torch::optim::OptimizerOptions& options) const override {
    return static_cast<const Options&>(options).amsgrad() ? 0b111U : 0b011U;
  }

  std::unique_ptr<torch::optim::OptimizerParamState> make_zero_state() const override {
    return std::make_unique<State>();
  }

  bool element_wise() const noexcept override { return true; }

  at::Tensor& tensor(torch::optim::OptimizerParamState& state, std::size_t field) const override {
    auto& own = static_cast<State&>(state);
    switch (field) {
      case 0:
        return own.exp_avg();
      case 1:
        return own.exp_avg_sq();
      default:
        SPILLWAY_CHECK(field == 2, "Adam has three state tensors");
        return own.max_exp_avg_sq();
    }
  }

 private:
  std::string_view optimizer_;
};

// The momentum buffer starts as a copy of the first (decayed) gradient, which only the step itself knows.
class SgdFields final : public StateFields {
 public:
  std::string_view optimizer() const noexcept override { return "SGD"; }

  std::span<const std::string_view> names() const noexcept override {
    static constexpr std::array<std::string_view, 1> kNames{"momentum_buffer"};
    return kNames;
  }

  FieldMask needed(const torch::optim::OptimizerOptions& options) const override {
    return static_cast<const torch::optim::SGDOptions&>(options).momentum() != 0 ? 0b1U : 0U;
  }

  std::unique_ptr<torch::optim::OptimizerParamState> make_zero_state() const override { return nullptr; }

  bool element_wise() const noexcept override { return true; }

  at::Tensor& tensor(torch::optim::OptimizerParamState& state, std::size_t field) const override {
    SPILLWAY_CHECK(field == 0, "SGD has one state tensor");
    return static_cast<torch::optim::SGDParamState&>(state).momentum_buffer();
  }
};

class RmspropFields final : public StateFields {
 public:
  std::string_view optimizer() const noexcept override { return "RMSprop"; }

  std::span<const std::string_view> names() const noexcept override {
    static constexpr std::array<std::string_view, 3> kNames{"square_avg", "momentum_buffer", "grad_avg"};
    return kNames;
  }

  FieldMask needed(const torch::optim::OptimizerOptions& options) const override {
    const auto& own = static_cast<const torch::optim::RMSpropOptions&>(options);
    return 0b001U | (own.momentum() > 0 ? 0b010U : 0U) | (own.centered() ? 0b100U : 0U);
  }

  std::unique_ptr<torch::optim::OptimizerParamState> make_zero_state() const override {
    return std::make_unique<torch::optim::RMSpropParamState>();
  }

  bool element_wise() const noexcept override { return true; }

  at::Tensor& tensor(torch::optim::OptimizerParamState& state, std::size_t field) const override {
    auto& own = static_cast<torch::optim::RMSpropParamState&>(state);
    switch (field) {
      case 0:
        return own.square_avg();
      case 1:
        return own.momentum_buffer();
      default:
        SPILLWAY_CHECK(field == 2, "RMSprop has three state tensors");
        return own.grad_avg();
    }
  }
};

// The sum starts at a value that the user chooses, and in the constructor.
class AdagradFields final : public StateFields {
 public:
  std::string_view optimizer() const noexcept override { return "Adagrad"; }

  std::span<const std::string_view> names() const noexcept override {
    static constexpr std::array<std::string_view, 1> kNames{"sum"};
    return kNames;
  }

  FieldMask needed(const torch::optim::OptimizerOptions& /*options*/) const override { return 0b1U; }

  std::unique_ptr<torch::optim::OptimizerParamState> make_zero_state() const override { return nullptr; }

  std::unique_ptr<torch::optim::OptimizerParamState> make_constructed_state(
      const at::Tensor& parameter, const torch::optim::OptimizerOptions& options) const override {
    auto state = std::make_unique<torch::optim::AdagradParamState>();
    const double value = static_cast<const torch::optim::AdagradOptions&>(options).initial_accumulator_value();
    state->sum(at::full_like(parameter.detach(), value, {}, at::MemoryFormat::Preserve));
    return state;
  }

  bool element_wise() const noexcept override { return true; }

  at::Tensor& tensor(torch::optim::OptimizerParamState& state, std::size_t field) const override {
    SPILLWAY_CHECK(field == 0, "Adagrad has one state tensor");
    return static_cast<torch::optim::AdagradParamState&>(state).sum();
  }
};

// Not element by element: a parameter's length is that of all of it.
class LarsFields final : public StateFields {
 public:
  std::string_view optimizer() const noexcept override { return "LARS"; }

  std::span<const std::string_view> names() const noexcept override {
    static constexpr std::array<std::string_view, 1> kNames{"momentum_buffer"};
    return kNames;
  }

  FieldMask needed(const torch::optim::OptimizerOptions& options) const override {
    return static_cast<const LarsOptions&>(options).momentum != 0.0 ? 0b1U : 0U;
  }

  std::unique_ptr<torch::optim::OptimizerParamState> make_zero_state() const override {
    return std::make_unique<LarsParamState>();
  }

  at::Tensor& tensor(torch::optim::OptimizerParamState& state, std::size_t field) const override {
    SPILLWAY_CHECK(field == 0, "LARS has one state tensor");
    return static_cast<LarsParamState&>(state).momentum_buffer;
  }
};

class UnmovedFields final : public StateFields {
 public:
  std::string_view optimizer() const noexcept override { return "the optimizer"; }
  std::span<const std::string_view> names() const noexcept override { return {}; }
  FieldMask needed(const torch::optim::OptimizerOptions& /*options*/) const override { return 0U; }
  std::unique_ptr<torch::optim::OptimizerParamState> make_zero_state() const override { return nullptr; }
  at::Tensor& tensor(torch::optim::OptimizerParamState& /*state*/, std::size_t /*field*/) const override {
    SPILLWAY_CHECK(false, "no tensor is moved");
    std::abort();
  }
};

struct Entry {
  const std::type_info& type;
  const StateFields& fields;
};

std::span<const Entry> entries() noexcept {
  static const AdamFields<torch::optim::AdamOptions, torch::optim::AdamParamState> kAdam("Adam");
  static const AdamFields<torch::optim::AdamWOptions, torch::optim::AdamWParamState> kAdamW("AdamW");
  static const SgdFields kSgd;
  static const RmspropFields kRmsprop;
  static const AdagradFields kAdagrad;
  static const LarsFields kLars;
  static const std::array<Entry, 6> kEntries{
      Entry{typeid(torch::optim::Adam), kAdam},       Entry{typeid(torch::optim::AdamW), kAdamW},
      Entry{typeid(torch::optim::SGD), kSgd},         Entry{typeid(torch::optim::RMSprop), kRmsprop},
      Entry{typeid(torch::optim::Adagrad), kAdagrad}, Entry{typeid(Lars), kLars}};
  return kEntries;
}

}  // namespace

std::unique_ptr<torch::optim::OptimizerParamState> StateFields::make_constructed_state(
    const at::Tensor& /*parameter*/, const torch::optim::OptimizerOptions& /*options*/) const {
  return nullptr;
}

const StateFields* find_state_fields(const torch::optim::Optimizer& optimizer) noexcept {
  for (const Entry& entry : entries()) {
    if (entry.type == typeid(optimizer)) {
      return &entry.fields;
    }
  }
  return nullptr;
}

const StateFields& unmoved_fields() noexcept {
  static const UnmovedFields kUnmoved;
  return kUnmoved;
}

std::string known_optimizers() {
  std::string names;
  for (const Entry& entry : entries()) {
    names += (names.empty() ? "" : ", ") + std::string(entry.fields.optimizer());
  }
  return names;
}

}  // namespace spillway::optimizer
