#include <spillway/optimizer/gradient_hooks.hpp>

#include <mutex>
#include <utility>

#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/graph_task.h>
#include <torch/csrc/autograd/variable.h>

#include <spillway/offload/error.hpp>

namespace spillway::optimizer {

using torch::autograd::PostAccumulateGradHook;

/// What hooks know of their sink.
struct GradientHooks::Link {
  explicit Link(GradientSink& gets) : sink(&gets) {}

  std::mutex mutex;
  GradientSink* sink;     // Null once the hooks were removed. Guarded by the mutex, as is the next.
  int watched_task = -1;  // The backward pass whose end will be told.
};

class GradientHooks::Hook final : public PostAccumulateGradHook {
 public:
  Hook(std::shared_ptr<Link> link, std::size_t number, std::string name,
       std::unique_ptr<PostAccumulateGradHook> previous)
      : link_(std::move(link)), number_(number), name_(std::move(name)), previous_(std::move(previous)) {}

  void operator()(const at::Tensor& parameter) override {
    if (previous_ != nullptr) {
      (*previous_)(parameter);
    }
    if (!parameter.grad().defined()) {
      return;  // The one before has taken it.
    }
    {
      const std::lock_guard lock(link_->mutex);
      if (link_->sink == nullptr) {
        return;
      }
      if (parameter.grad().layout() != at::kStrided) {
        throw Error("the gradient of " + name_ +
                    " is sparse, and gradients that are taken have to be dense: make the layer's gradient dense, or "
                    "leave gradients in place");
      }
      at::Tensor gradient = parameter.grad().detach();
      parameter.mutable_grad().reset();
      link_->sink->take(number_, std::move(gradient));
    }
    watch_backward();
  }

  [[nodiscard]] bool alive() const {
    const std::lock_guard lock(link_->mutex);
    return link_->sink != nullptr;
  }
  [[nodiscard]] const Link* link() const noexcept { return link_.get(); }
  [[nodiscard]] std::unique_ptr<PostAccumulateGradHook> give_up_previous() { return std::move(previous_); }

 private:
  /// Has the end of this backward pass told, once.
  void watch_backward() const {
    const int task = torch::autograd::get_current_graph_task_id();
    {
      const std::lock_guard lock(link_->mutex);
      if (std::exchange(link_->watched_task, task) == task) {
        return;
      }
    }
    torch::autograd::Engine::get_default_engine().queue_callback([link = link_] {
      // A node that is being evaluated here has started this pass: the outer one goes on, and more gradients may come.
      if (torch::autograd::get_current_node() != nullptr) {
        return;
      }
      const std::lock_guard lock(link->mutex);
      link->watched_task = -1;
      if (link->sink != nullptr) {
        link->sink->backward_ended();
      }
    });
  }

  const std::shared_ptr<Link> link_;
  const std::size_t number_;
  const std::string name_;
  std::unique_ptr<PostAccumulateGradHook> previous_;
};

GradientHooks::GradientHooks(GradientSink& sink) : link_(std::make_shared<Link>(sink)) {}

GradientHooks::~GradientHooks() {
  {
    const std::lock_guard lock(link_->mutex);
    link_->sink = nullptr;
  }
  for (const at::Tensor& parameter : parameters_) {
    auto* const hook = dynamic_cast<Hook*>(torch::autograd::impl::post_acc_grad_hooks(parameter).get());
    if (hook != nullptr && hook->link() == link_.get()) {
      torch::autograd::impl::set_post_acc_grad_hooks(parameter, hook->give_up_previous());
    }
  }
}

void GradientHooks::add(const at::Tensor& parameter, std::size_t number, std::string name) {
  std::unique_ptr<PostAccumulateGradHook> previous;
  if (torch::autograd::impl::get_autograd_meta(parameter) != nullptr) {
    std::unique_ptr<PostAccumulateGradHook>& slot = torch::autograd::impl::post_acc_grad_hooks(parameter);
    if (const auto* const other = dynamic_cast<const Hook*>(slot.get()); other != nullptr && other->alive()) {
      throw ConfigError("the gradients of " + name +
                        " are taken by another wrapped optimizer: a parameter belongs to one of them");
    }
    previous = std::move(slot);
  }
  torch::autograd::impl::set_post_acc_grad_hooks(
      parameter, std::make_unique<Hook>(link_, number, std::move(name), std::move(previous)));
  parameters_.push_back(parameter);
}

}  // namespace spillway::optimizer
