// The state of a wrapped optimizer tensor by tensor: what a checkpoint reads and writes.
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include <ATen/core/grad_mode.h>
#include <torch/serialize/archive.h>

#include <spillway/offload/error.hpp>
#include <spillway/optimizer/rank_agreement.hpp>
#include <spillway/optimizer/sharded_optimizer.hpp>
#include <spillway/optimizer/taken_gradients.hpp>

namespace spillway::optimizer {
namespace {

using States = ska::flat_hash_map<void*, std::unique_ptr<torch::optim::OptimizerParamState>>;

/// Tensors of no elements stay with LibTorch wherever the others are, and in its archive.
bool is_carried(const at::Tensor& tensor) { return tensor.defined() && tensor.numel() > 0; }

/// Takes the tensors out of state objects for as long as it lives.
class WithoutTensors {
 public:
  WithoutTensors(const StateFields& fields, States& states) : fields_(fields) {
    for (auto& [key, state] : states) {
      for (std::size_t field = 0; field < fields_.names().size(); ++field) {
        at::Tensor& place = fields_.tensor(*state, field);
        if (!is_carried(place)) continue;
        taken_.push_back({state.get(), field, place});
        place = at::Tensor();
      }
    }
  }
  WithoutTensors(const WithoutTensors&) = delete;
  WithoutTensors& operator=(const WithoutTensors&) = delete;
  ~WithoutTensors() {
    for (const Taken& taken : taken_) fields_.tensor(*taken.state, taken.field) = taken.tensor;
  }

 private:
  struct Taken {
    torch::optim::OptimizerParamState* state;
    std::size_t field;
    at::Tensor tensor;
  };
  const StateFields& fields_;
  std::vector<Taken> taken_;
};

void check_like(const std::string& name, const at::Tensor& read, at::IntArrayRef sizes, at::ScalarType type) {
  if (!read.defined())
    throw Error("the state has no tensor " + name +
                ": it is of another optimizer or of other options; restore it into one that is constructed as the "
                "saved one was");
  if (read.sizes() != sizes || read.scalar_type() != type) {
    throw Error("the state's tensor " + name +
                " is of another size or type than this optimizer's: restore it into one over the same parameters");
  }
}

}  // namespace

void Optimizer::refuse_shards() const {
  if (gradients_ != nullptr && gradients_->agreement().world_size() > 1) {
    throw Error("the state is spread over ranks: save() and load() gather it, tensor by tensor it is not to be had");
  }
}

std::unordered_map<const c10::TensorImpl*, std::string> Optimizer::parameter_names() const {
  std::unordered_map<const c10::TensorImpl*, std::string> names;
  for_each_parameter([&](const std::string& name, const at::Tensor& parameter) {
    names.try_emplace(parameter.unsafeGetTensorImpl(), name);  // A tied one has the name of its first use.
  });
  return names;
}

const StateFields& Optimizer::memory_fields() const {
  const StateFields* const fields = own_fields_ != nullptr ? own_fields_.get() : find_state_fields(*wrapped_);
  if (fields == nullptr) {
    throw Error("the state of this optimizer is not known to Spillway: describe it in OptimizerConfig::state_fields");
  }
  return *fields;
}

void Optimizer::walk_in_memory(const MemoryVisitor& work) const {
  const StateFields& fields = memory_fields();
  std::unordered_set<const c10::TensorImpl*> seen;
  for_each_parameter([&](const std::string& name, const at::Tensor& parameter) {
    const auto found = wrapped_->state().find(parameter.unsafeGetTensorImpl());
    if (found == wrapped_->state().end() || !seen.insert(parameter.unsafeGetTensorImpl()).second) return;
    for (std::size_t field = 0; field < fields.names().size(); ++field) {
      work(name + "." + std::string(fields.names()[field]), parameter, fields.tensor(*found->second, field));
    }
  });
}

void Optimizer::visit_in_memory(const StateVisitor& visit) const {
  walk_in_memory([&](const std::string& name, const at::Tensor& /*parameter*/, const at::Tensor& tensor) {
    if (is_carried(tensor)) visit(name, tensor);
  });
}

void Optimizer::visit_state(const StateVisitor& visit) {
  refuse_if_poisoned();
  refuse_shards();
  const at::NoGradGuard no_grad;
  if (in_memory_) {
    visit_in_memory(visit);
    return;
  }
  const auto names = parameter_names();
  poison_on_failure([&] {
    state_->visit([&](const at::Tensor& parameter, const StoredTensor& stored) {
      visit(names.at(parameter.unsafeGetTensorImpl()) + "." + stored.name, stored.values);
    });
  });
}

void Optimizer::list_state(const StateVisitor& visit) const {
  refuse_shards();
  if (in_memory_) {
    visit_in_memory(visit);
    return;
  }
  const auto names = parameter_names();
  state_->list([&](const at::Tensor& parameter, const StoredTensor& stored) {
    visit(names.at(parameter.unsafeGetTensorImpl()) + "." + stored.name, stored.values);
  });
}

void Optimizer::restore_state(const std::function<at::Tensor(const std::string&)>& read) {
  refuse_shards();
  const at::NoGradGuard no_grad;
  poison_on_failure([&] {
    if (in_memory_) {
      walk_in_memory([&](const std::string& name, const at::Tensor& parameter, at::Tensor& place) {
        const at::Tensor values = read(name);
        if (values.defined()) {
          check_like(name, values, parameter.sizes(), parameter.scalar_type());
          place = values.to(parameter.device(), /*non_blocking=*/false, /*copy=*/true);
        }
      });
      return;
    }
    const auto names = parameter_names();
    state_->rewrite([&](const at::Tensor& parameter, const StoredTensor& stored) {
      const std::string name = names.at(parameter.unsafeGetTensorImpl()) + "." + stored.name;
      const at::Tensor values = read(name);
      check_like(name, values, stored.values.sizes(), stored.values.scalar_type());
      stored.values.copy_(values);
    });
  });
}

void Optimizer::save_counters(torch::serialize::OutputArchive& archive) const {
  refuse_if_poisoned();
  refuse_shards();
  give_wrapped_options();
  if (!in_memory_) {
    wrapped_->save(archive);
    return;
  }
  const WithoutTensors without(memory_fields(), wrapped_->state());
  wrapped_->save(archive);
}

void Optimizer::load_counters(torch::serialize::InputArchive& archive) {
  refuse_if_poisoned();
  refuse_shards();
  follow_groups();
  give_wrapped_all_parameters();
  load_wrapped(archive);
  take_wrapped_options();
}

}  // namespace spillway::optimizer
