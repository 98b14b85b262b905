#include <spillway/optimizer/state_fields.hpp>

#include <array>
#include <typeinfo>

#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/sgd.h>

#include <spillway/offload/check.hpp>

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

  at::Tensor& tensor(torch::optim::OptimizerParamState& state, std::size_t field) const override {
    SPILLWAY_CHECK(field == 0, "SGD has one state tensor");
    return static_cast<torch::optim::SGDParamState&>(state).momentum_buffer();
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
  static const std::array<Entry, 3> kEntries{Entry{typeid(torch::optim::Adam), kAdam},
                                             Entry{typeid(torch::optim::AdamW), kAdamW},
                                             Entry{typeid(torch::optim::SGD), kSgd}};
  return kEntries;
}

}  // namespace

const StateFields* find_state_fields(const torch::optim::Optimizer& optimizer) noexcept {
  for (const Entry& entry : entries()) {
    if (entry.type == typeid(optimizer)) {
      return &entry.fields;
    }
  }
  return nullptr;
}

std::string known_optimizers() {
  std::string names;
  for (const Entry& entry : entries()) {
    names += (names.empty() ? "" : ", ") + std::string(entry.fields.optimizer());
  }
  return names;
}

}  // namespace spillway::optimizer
