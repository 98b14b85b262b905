#include <spillway/optimizer/fused_update.hpp>

#include <array>
#include <map>
#include <tuple>
#include <typeinfo>
#include <utility>
#include <vector>

#include <torch/optim/adagrad.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/sgd.h>

#include <spillway/offload/check.hpp>
#include <spillway/optimizer/adagrad_kernel.hpp>
#include <spillway/optimizer/adam_kernel.hpp>
#include <spillway/optimizer/coded_adam_kernel.hpp>
#include <spillway/optimizer/sgd_kernel.hpp>

namespace spillway::optimizer {
namespace {

using torch::optim::OptimizerOptions;

// The constants of an update by options and step count. Many parameters share them, and to compute them costs more than
// to update a small tensor.
template <typename Step>
class Constants {
 public:
  template <typename Make>
  const Step* of(const UpdatePiece& piece, const Make& make) {
    const Key key{piece.options, piece.step};
    if (last_ == nullptr || key != last_key_) {
      const auto [found, fresh] = steps_.try_emplace(key);
      if (fresh) {
        found->second = make();
      }
      last_key_ = key;
      last_ = &found->second;
    }
    return last_;
  }

 private:
  using Key = std::pair<const OptimizerOptions*, std::uint64_t>;
  std::map<Key, Step> steps_;  // Its nodes stay where they are.
  Key last_key_{};
  const Step* last_ = nullptr;
};

// Kernels take tensors of equal types in one call.
template <typename Tensor>
class ByTypes {
 public:
  void add(const KernelTypes& types, Tensor tensor) {
    for (auto& [known, tensors] : lists_) {
      if (known == types) {
        tensors.push_back(tensor);
        return;
      }
    }
    lists_.emplace_back(types, std::vector<Tensor>{tensor});
  }
  [[nodiscard]] const auto& lists() const noexcept { return lists_; }

 private:
  std::vector<std::pair<KernelTypes, std::vector<Tensor>>> lists_;
};

template <typename State>
std::uint64_t count_in(FusedUpdate::States& states, const at::Tensor& parameter) {
  auto& entry = states[parameter.unsafeGetTensorImpl()];
  if (entry == nullptr) {
    entry = std::make_unique<State>();
  }
  auto& state = static_cast<State&>(*entry);
  state.step(state.step() + 1);
  return static_cast<std::uint64_t>(state.step());
}

CodedField codes(const UpdatePiece& piece, std::size_t field) {
  return {static_cast<std::uint8_t*>(piece.state[field]), piece.scales[field]};
}

// Adam and AdamW differ in where the decay goes.
template <typename Options, typename State, bool kDecoupled>
class FusedAdam final : public FusedUpdate {
 public:
  std::uint64_t count(States& states, const at::Tensor& parameter, const OptimizerOptions& /*options*/) const override {
    return count_in<State>(states, parameter);
  }

  bool takes_codes() const noexcept override { return true; }

  void update(std::span<const UpdatePiece> pieces, const GradientScale& scale,
              const offload::Parallel& parallel) const override {
    Constants<AdamStep> constants;
    ByTypes<AdamTensor> tensors;
    ByTypes<CodedAdamTensor> coded;
    for (const UpdatePiece& piece : pieces) {
      const auto& options = static_cast<const Options&>(*piece.options);
      const AdamStep* step = constants.of(piece, [&] {
        return adam_step({.lr = options.lr(),
                          .beta1 = std::get<0>(options.betas()),
                          .beta2 = std::get<1>(options.betas()),
                          .eps = options.eps(),
                          .weight_decay = options.weight_decay(),
                          .decoupled = kDecoupled},
                         piece.step);
      });
      AdamTensor tensor{.numel = piece.numel,
                        .gradient = piece.gradient,
                        .weight = piece.weight,
                        .master = piece.master,
                        .step = step};
      if (piece.scales[0] != nullptr) {
        coded.add(piece.types,
                  {tensor, codes(piece, 0), codes(piece, 1), options.amsgrad() ? codes(piece, 2) : CodedField{}});
        continue;
      }
      tensor.exp_avg = piece.state[0];
      tensor.exp_avg_sq = piece.state[1];
      tensor.max_exp_avg_sq = options.amsgrad() ? piece.state[2] : nullptr;
      tensors.add(piece.types, tensor);
    }
    for (const auto& [types, list] : coded.lists()) {
      coded_adam_update(list, types, scale, parallel);
    }
    for (const auto& [types, list] : tensors.lists()) {
      adam_update(list, types, scale, parallel);
    }
  }
};

class FusedSgd final : public FusedUpdate {
 public:
  using Options = torch::optim::SGDOptions;

  std::uint64_t count(States& states, const at::Tensor& parameter, const OptimizerOptions& options) const override {
    if (static_cast<const Options&>(options).momentum() == 0) {
      return 2;
    }
    auto& entry = states[parameter.unsafeGetTensorImpl()];
    if (entry != nullptr) {
      return 2;
    }
    entry = std::make_unique<torch::optim::SGDParamState>();
    return 1;
  }

  void update(std::span<const UpdatePiece> pieces, const GradientScale& scale,
              const offload::Parallel& parallel) const override {
    Constants<SgdStep> constants;
    ByTypes<SgdTensor> tensors;
    for (const UpdatePiece& piece : pieces) {
      const auto& options = static_cast<const Options&>(*piece.options);
      const SgdStep* step = constants.of(piece, [&] {
        return sgd_step({.lr = options.lr(),
                         .momentum = options.momentum(),
                         .dampening = options.dampening(),
                         .weight_decay = options.weight_decay(),
                         .nesterov = options.nesterov()});
      });
      tensors.add(piece.types, {.numel = piece.numel,
                                .gradient = piece.gradient,
                                .weight = piece.weight,
                                .master = piece.master,
                                .momentum_buffer = options.momentum() != 0 ? piece.state[0] : nullptr,
                                .first = piece.step == 1,
                                .step = step});
    }
    for (const auto& [types, list] : tensors.lists()) {
      sgd_update(list, types, scale, parallel);
    }
  }
};

class FusedAdagrad final : public FusedUpdate {
 public:
  using Options = torch::optim::AdagradOptions;

  std::uint64_t count(States& states, const at::Tensor& parameter, const OptimizerOptions& /*options*/) const override {
    return count_in<torch::optim::AdagradParamState>(states, parameter);
  }

  void update(std::span<const UpdatePiece> pieces, const GradientScale& scale,
              const offload::Parallel& parallel) const override {
    Constants<AdagradStep> constants;
    ByTypes<AdagradTensor> tensors;
    for (const UpdatePiece& piece : pieces) {
      const auto& options = static_cast<const Options&>(*piece.options);
      const AdagradStep* step = constants.of(piece, [&] {
        return adagrad_step({.lr = options.lr(),
                             .lr_decay = options.lr_decay(),
                             .weight_decay = options.weight_decay(),
                             .eps = options.eps()},
                            piece.step);
      });
      tensors.add(piece.types, {.numel = piece.numel,
                                .gradient = piece.gradient,
                                .weight = piece.weight,
                                .master = piece.master,
                                .sum = piece.state[0],
                                .step = step});
    }
    for (const auto& [types, list] : tensors.lists()) {
      adagrad_update(list, types, scale, parallel);
    }
  }
};

}  // namespace

const FusedUpdate* find_fused_update(const torch::optim::Optimizer& optimizer) noexcept {
  static const FusedAdam<torch::optim::AdamOptions, torch::optim::AdamParamState, false> kAdam;
  static const FusedAdam<torch::optim::AdamWOptions, torch::optim::AdamWParamState, true> kAdamW;
  static const FusedSgd kSgd;
  static const FusedAdagrad kAdagrad;
  const std::array<std::pair<const std::type_info*, const FusedUpdate*>, 4> known{
      {{&typeid(torch::optim::Adam), &kAdam},
       {&typeid(torch::optim::AdamW), &kAdamW},
       {&typeid(torch::optim::SGD), &kSgd},
       {&typeid(torch::optim::Adagrad), &kAdagrad}}};
  for (const auto& [type, update] : known) {
    if (*type == typeid(optimizer)) {
      return update;
    }
  }
  return nullptr;
}

}  // namespace spillway::optimizer
