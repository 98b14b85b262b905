// The state of a wrapped optimizer tensor by tensor: what a checkpoint reads and writes.
#include <exception>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>
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

bool Optimizer::is_sharded() const { return gradients_ != nullptr && gradients_->agreement().world_size() > 1; }

Optimizer::ParameterNames Optimizer::parameter_names() const {
  ParameterNames names;
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

// No rank has two pieces of one parameter.
std::string Optimizer::slot_name(const ParameterNames& names, const ParameterSlot& slot) {
  const std::string& name = names.at(slot.listed().unsafeGetTensorImpl());
  return slot.whole.defined() ? name + "[" + std::to_string(slot.begin) + ":" + std::to_string(slot.end()) + "]" : name;
}

void Optimizer::walk_in_memory(const MemoryVisitor& work) const {
  const StateFields& fields = memory_fields();
  std::unordered_set<const c10::TensorImpl*> seen;
  const auto walk = [&](StatePiece piece, const at::Tensor& parameter) {
    const auto found = wrapped_->state().find(parameter.unsafeGetTensorImpl());
    if (found == wrapped_->state().end() || !seen.insert(parameter.unsafeGetTensorImpl()).second) return;
    const std::string name = std::move(piece.name);
    for (std::size_t field = 0; field < fields.names().size(); ++field) {
      piece.name = name + "." + std::string(fields.names()[field]);
      work(piece, parameter, fields.tensor(*found->second, field));
    }
  };
  if (!is_sharded()) {
    for_each_parameter([&](const std::string& name, const at::Tensor& parameter) {
      walk({name, parameter, 0, static_cast<std::uint64_t>(parameter.numel())}, parameter);
    });
    return;
  }
  const ParameterNames names = parameter_names();
  state_->for_each_slot([&](const ParameterSlot& slot) {
    walk({slot_name(names, slot), slot.listed(), slot.begin, slot.end()}, slot.parameter);
  });
}

void Optimizer::visit_in_memory(const StateVisitor& visit) const {
  walk_in_memory([&](const StatePiece& piece, const at::Tensor& /*parameter*/, const at::Tensor& tensor) {
    if (is_carried(tensor)) visit(piece.name, tensor);
  });
}

void Optimizer::visit_state(const StateVisitor& visit) {
  refuse_if_poisoned();
  const at::NoGradGuard no_grad;
  if (in_memory_) {
    visit_in_memory(visit);
    return;
  }
  const ParameterNames names = parameter_names();
  std::exception_ptr of_visitor;  // A disk that is full of checkpoints is no matter of the state's.
  poison_on_failure([&] {
    try {
      state_->visit([&](const ParameterSlot& slot, const StoredTensor& stored) {
        try {
          visit(slot_name(names, slot) + "." + stored.name, stored.values);
        } catch (...) {
          of_visitor = std::current_exception();
          throw;
        }
      });
    } catch (...) {
      if (!of_visitor) throw;
    }
  });
  if (of_visitor) std::rethrow_exception(of_visitor);
}

void Optimizer::list_state(const StateVisitor& visit) const {
  if (in_memory_) {
    visit_in_memory(visit);
    return;
  }
  const ParameterNames names = parameter_names();
  state_->list([&](const ParameterSlot& slot, const StoredTensor& stored) {
    visit(slot_name(names, slot) + "." + stored.name, stored.values);
  });
}

void Optimizer::restore_state(const std::function<at::Tensor(const StatePiece&)>& read) {
  const at::NoGradGuard no_grad;
  poison_on_failure([&] {
    if (in_memory_) {
      std::unordered_map<const c10::TensorImpl*, std::string> without;  // By parameter, the name of what it may have.
      walk_in_memory([&](const StatePiece& piece, const at::Tensor& parameter, at::Tensor& place) {
        const std::string& name = piece.name;
        const at::Tensor values = read(piece);
        without.try_emplace(parameter.unsafeGetTensorImpl(), parameter.numel() == 0 ? "" : name);
        if (values.defined()) {
          without[parameter.unsafeGetTensorImpl()].clear();
          check_like(name, values, parameter.sizes(), parameter.scalar_type());
          place = values.to(parameter.device(), /*non_blocking=*/false, /*copy=*/true);
        }
      });
      for (const auto& [parameter, name] : without) {
        if (!name.empty()) check_like(name, {}, {}, at::kFloat);
      }
      return;
    }
    const ParameterNames names = parameter_names();
    state_->rewrite([&](const ParameterSlot& slot, const StoredTensor& stored) {
      const std::string name = slot_name(names, slot) + "." + stored.name;
      const at::Tensor values = read({name, slot.listed(), slot.begin, slot.end()});
      check_like(name, values, stored.values.sizes(), stored.values.scalar_type());
      stored.values.copy_(values);
    });
  });
}

void Optimizer::save_counters(torch::serialize::OutputArchive& archive) const {
  // The states of pieces, which archives do not find where they are.
  struct UnderParameters {
    StreamedState* const state;
    explicit UnderParameters(StreamedState* of) : state(of) {
      if (state != nullptr) state->move_states(/*to_parameters=*/true);
    }
    ~UnderParameters() {
      if (state != nullptr) state->move_states(/*to_parameters=*/false);
    }
  };
  refuse_if_poisoned();
  give_wrapped_options();
  const UnderParameters moved(state_.get());
  if (!in_memory_) {
    wrapped_->save(archive);
    return;
  }
  const WithoutTensors without(memory_fields(), wrapped_->state());
  wrapped_->save(archive);
}

void Optimizer::load_counters(std::span<torch::serialize::InputArchive> archives) {
  refuse_if_poisoned();
  follow_groups();
  give_wrapped_all_parameters();
  for (torch::serialize::InputArchive& archive : archives) load_wrapped(archive);
  if (is_sharded()) {
    state_->drop_foreign(param_groups_);
    state_->split_states();
  }
  take_wrapped_options();
}

}  // namespace spillway::optimizer
