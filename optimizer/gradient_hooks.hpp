#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

namespace spillway::optimizer {

/// Gets gradients as soon as they are complete.
class GradientSink {
 public:
  GradientSink() = default;
  GradientSink(const GradientSink&) = delete;
  GradientSink& operator=(const GradientSink&) = delete;
  virtual ~GradientSink() = default;

  /// A gradient of parameter `parameter`, which is the sink's from now on: dense, of any strides, and not part of a
  /// graph. On whatever thread autograd ran; may come any number of times in one backward pass.
  virtual void take(std::size_t parameter, at::Tensor gradient) = 0;
  /// A backward pass that gave gradients has ended. May come more often than that, and not at all where the pass threw
  /// or ran inside of another one.
  virtual void backward_ended() = 0;
};

/// Post-accumulate hooks that take the gradients of parameters and leave `.grad` undefined. LibTorch has one slot for
/// such a hook on each tensor: what is there runs first, and is put back when this dies. One that is set later and does
/// not call ours takes its place: the gradients stay in `.grad` then. Add and destroy while no backward pass runs.
class GradientHooks {
 public:
  /// @param sink  outlives this.
  explicit GradientHooks(GradientSink& sink);
  GradientHooks(const GradientHooks&) = delete;
  GradientHooks& operator=(const GradientHooks&) = delete;
  ~GradientHooks();

  /// Takes the gradients of `parameter`, frozen or not, and calls it `number`. A gradient that is sparse makes the
  /// backward pass throw Error with `name` and stays where it is.
  /// @throws ConfigError where other hooks of this kind take them already.
  void add(const at::Tensor& parameter, std::size_t number, std::string name);

 private:
  struct Link;
  class Hook;

  std::shared_ptr<Link> link_;  // Shared with the hooks: one that another hook holds may outlive this.
  std::vector<at::Tensor> parameters_;
};

}  // namespace spillway::optimizer
