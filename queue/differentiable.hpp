#pragma once

#include <functional>
#include <vector>

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

namespace spillway::queue {

/// While it lives, this thread's operations are neither recorded for autograd nor cast by autocast, which would make
/// half-precision logits.
class PlainArithmetic {
 public:
  PlainArithmetic() = default;
  PlainArithmetic(const PlainArithmetic&) = delete;
  PlainArithmetic& operator=(const PlainArithmetic&) = delete;

 private:
  at::NoGradGuard no_grad_;
  c10::impl::ExcludeDispatchKeyGuard no_autocast_{c10::autocast_dispatch_keyset};
};

/// How backward gets from the gradient of an output to those of the inputs, in plain arithmetic.
struct Derivative {
  /// @param d_output  Of the output's shape and dtype.
  /// @param saved     As below. Whatever was changed in place in the meantime is found by autograd, which throws.
  /// @param wanted    For each input whether its gradient is asked for.
  /// @returns a gradient for each input that is wanted, of its shape and any floating dtype; the others are passed
  /// over.
  using Function = std::function<std::vector<at::Tensor>(
      const at::Tensor& d_output, const std::vector<at::Tensor>& saved, const std::vector<bool>& wanted)>;

  const char* name = "";           ///< Of the public function, for the error of a second differentiation; static.
  std::vector<at::Tensor> inputs;  ///< Undefined ones are allowed: they get no gradient.
  std::vector<at::Tensor> saved;   ///< Freed after backward, unless the graph is retained.
  Function function;               ///< Must not hold the output.
};

/// `output`, which was computed in plain arithmetic, as a part of autograd's graph: its gradient goes to the inputs by
/// `derivative`, once. Differentiating that gradient again throws and says so. Without an input that requires a
/// gradient, or without grad mode, the output comes back as it is.
[[nodiscard]] at::Tensor differentiable(at::Tensor output, Derivative derivative);

}  // namespace spillway::queue
