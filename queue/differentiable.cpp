#include <mutex>
#include <string>
#include <utility>

#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/basic_ops.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/saved_variable.h>

#include <spillway/queue/differentiable.hpp>

namespace spillway::queue {

namespace {

using torch::autograd::SavedVariable;
using torch::autograd::variable_list;

class DerivativeNode final : public torch::autograd::Node {
 public:
  explicit DerivativeNode(Derivative& derivative)
      : Node(torch::autograd::collect_next_edges(derivative.inputs)),
        name_(derivative.name),
        function_(std::move(derivative.function)) {
    for (const at::Tensor& input : derivative.inputs) {
      dtypes_.push_back(input.defined() ? input.scalar_type() : at::kFloat);
    }
    for (const at::Tensor& tensor : derivative.saved) saved_.emplace_back(tensor, /*is_output=*/false);
  }

  variable_list apply(variable_list&& gradients) override {
    const std::lock_guard lock(mutex_);
    variable_list results = differentiate(gradients.front());
    if (!at::GradMode::is_enabled()) return results;
    // The gradient was computed out of autograd's sight: whoever differentiates it must not get an answer.
    torch::autograd::DelayedError refuse(
        std::string(name_) +
            " has no second derivative: its gradient is computed tile by tile, out of autograd's sight; call backward "
            "without create_graph",
        static_cast<std::int64_t>(results.size()));
    for (at::Tensor& result : results) {
      if (result.defined()) result = result.detach().requires_grad_();
    }
    return refuse(std::move(results));
  }

  void release_variables() override {
    const std::lock_guard lock(mutex_);
    for (SavedVariable& tensor : saved_) tensor.reset_data();
  }

  std::string name() const override { return std::string("spillway::") + name_; }

 private:
  variable_list differentiate(const at::Tensor& d_output) {
    const PlainArithmetic plain;
    std::vector<at::Tensor> saved;
    for (const SavedVariable& tensor : saved_) saved.push_back(tensor.unpack());
    std::vector<bool> wanted;
    for (std::size_t i = 0; i < dtypes_.size(); ++i) wanted.push_back(task_should_compute_output(i));
    variable_list results = function_(d_output.defined() ? d_output : input_metadata(0).zeros_like(), saved, wanted);
    results.resize(dtypes_.size());
    for (std::size_t i = 0; i < results.size(); ++i) {
      results[i] = wanted[i] && results[i].defined() ? results[i].to(dtypes_[i]) : at::Tensor();
    }
    return results;
  }

  const char* name_;
  Derivative::Function function_;
  std::vector<at::ScalarType> dtypes_;
  std::vector<SavedVariable> saved_;
};

}  // namespace

at::Tensor differentiable(at::Tensor output, Derivative derivative) {
  bool wanted = false;
  for (const at::Tensor& input : derivative.inputs) wanted = wanted || (input.defined() && input.requires_grad());
  if (!wanted || !at::GradMode::is_enabled()) return output;
  const std::shared_ptr<DerivativeNode> node(new DerivativeNode(derivative), torch::autograd::deleteNode);
  torch::autograd::set_history(output, node);
  return output;
}

}  // namespace spillway::queue
