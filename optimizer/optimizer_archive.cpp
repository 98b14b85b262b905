// How a wrapped optimizer is saved and loaded: as LibTorch's archive of the one that it wraps.
#include <cstddef>
#include <cstdint>
#include <memory>
#include <sstream>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_strided.h>
#include <torch/serialize/archive.h>

#include <spillway/offload/error.hpp>
#include <spillway/optimizer/piece_state.hpp>
#include <spillway/optimizer/rank_agreement.hpp>
#include <spillway/optimizer/sharded_optimizer.hpp>
#include <spillway/optimizer/taken_gradients.hpp>
#include <spillway/optimizer/tensor_piece.hpp>

namespace spillway::optimizer {
namespace {

// In archives, beside LibTorch's "state" and "param_groups".
constexpr const char* kMastersKey = "masters";
constexpr const char* kCodesKey = "codes";

}  // namespace

// Those that were changed since the last step, maybe.
void Optimizer::give_wrapped_options() const {
  give_wrapped_all_parameters();
  for (std::size_t g = 0; g < wrapped_->param_groups().size(); ++g) {
    wrapped_->param_groups()[g].set_options(param_groups_[g].options().clone());
  }
}

void Optimizer::take_wrapped_options() {
  for (std::size_t g = 0; g < param_groups_.size(); ++g) {
    param_groups_[g].set_options(wrapped_->param_groups()[g].options().clone());
  }
}

void Optimizer::save(torch::serialize::OutputArchive& archive) const {
  refuse_if_poisoned();
  give_wrapped_options();
  if (state_ == nullptr) {
    wrapped_->save(archive);
    return;
  }
  const at::NoGradGuard no_grad;
  if (gradients_ != nullptr && gradients_->agreement().world_size() > 1) {
    save_gathered(archive);
  } else {
    save_own(archive);
  }
}

void Optimizer::save_own(torch::serialize::OutputArchive& archive) const {
  struct Copies {
    StreamedState& state;
    StreamedState::Extras extras;
    explicit Copies(StreamedState& from) : state(from), extras(from.copy_out()) {
      state.move_states(/*to_parameters=*/true);
    }
    ~Copies() {
      state.move_states(/*to_parameters=*/false);
      state.clear();
    }
  };
  const Copies copies(*state_);
  wrapped_->save(archive);
  write_extras(archive, copies.extras);
}

// An archive without any is the plain optimizer's.
void Optimizer::write_extras(torch::serialize::OutputArchive& archive, const StreamedState::Extras& extras) const {
  write_extras(archive, kMastersKey, extras, &StreamedState::Extra::master);
  write_extras(archive, kCodesKey, extras, &StreamedState::Extra::codes);
}

void Optimizer::write_extras(torch::serialize::OutputArchive& archive, const char* name,
                             const StreamedState::Extras& extras, at::Tensor StreamedState::Extra::*member) const {
  torch::serialize::OutputArchive tensors(archive.compilation_unit());
  bool any = false;
  for_each_parameter([&](const std::string& key, const at::Tensor& parameter) {
    const auto found = extras.find(parameter.unsafeGetTensorImpl());
    if (found != extras.end() && (found->second.*member).defined()) {
      tensors.write(key, found->second.*member, /*is_buffer=*/true);
      any = true;
    }
  });
  if (any) {
    archive.write(name, tensors);
  }
}

StreamedState::Extras Optimizer::read_extras(torch::serialize::InputArchive& archive) const {
  StreamedState::Extras extras;
  torch::serialize::InputArchive masters;
  torch::serialize::InputArchive codes;
  const bool has_masters = archive.try_read(kMastersKey, masters);
  const bool has_codes = archive.try_read(kCodesKey, codes);
  for_each_parameter([&](const std::string& key, const at::Tensor& parameter) {
    StreamedState::Extra extra;
    if (has_masters) {
      masters.try_read(key, extra.master, /*is_buffer=*/true);
    }
    const bool coded = has_codes && codes.try_read(key, extra.codes, /*is_buffer=*/true);
    if (coded || extra.master.defined()) {
      extras[parameter.unsafeGetTensorImpl()] = extra;
    }
  });
  return extras;
}

// Before anything changes.
void Optimizer::check_extras(const StreamedState::Extras& extras) const {
  for_each_parameter([&](const std::string& key, const at::Tensor& parameter) {
    const auto found = extras.find(parameter.unsafeGetTensorImpl());
    const at::Tensor master = found == extras.end() ? at::Tensor() : found->second.master;
    if (master.defined() && (master.sizes() != parameter.sizes() || master.scalar_type() != at::kFloat)) {
      throw Error("the archive's master of parameter " + key + " (group/index) is not float32 of the parameter's size");
    }
  });
}

void Optimizer::for_each_parameter(const std::function<void(const std::string&, const at::Tensor&)>& work) const {
  for (std::size_t g = 0; g < param_groups_.size(); ++g) {
    for (std::size_t i = 0; i < param_groups_[g].params().size(); ++i) {
      work(std::to_string(g) + "/" + std::to_string(i), param_groups_[g].params()[i]);
    }
  }
}

// LibTorch's load takes the state of a parameter that is listed twice away again at its second mention: something else
// stands there meanwhile.
void Optimizer::load_wrapped(torch::serialize::InputArchive& archive) const {
  std::unordered_set<const c10::TensorImpl*> seen;
  std::vector<at::Tensor> in_their_place;
  for (auto& group : wrapped_->param_groups()) {
    for (at::Tensor& parameter : group.params()) {
      if (!seen.insert(parameter.unsafeGetTensorImpl()).second) {
        parameter = in_their_place.emplace_back(at::empty({0}));
      }
    }
  }
  wrapped_->load(archive);
  for (const at::Tensor& other : in_their_place) {
    wrapped_->state().erase(other.unsafeGetTensorImpl());
  }
  give_wrapped_all_parameters();
}

// What the ranks' parts of an archive make together: the state of cut parameters, and what kernels keep.
struct GatheredState {
  std::unordered_map<void*, std::unique_ptr<torch::optim::OptimizerParamState>> states;
  StreamedState::Extras extras;
};

// LibTorch's load() adds what a part has to what the optimizer has. A part of a cut parameter's state comes under the
// parameter, and the next rank's would take its place: it is put aside.
void Optimizer::join_part(torch::serialize::InputArchive& part, int rank, GatheredState& gathered) const {
  StreamedState::Extras extras = read_extras(part);
  load_wrapped(part);
  const StateFields& fields = state_->fields();
  for_each_parameter([&](const std::string& /*key*/, const at::Tensor& parameter) {
    auto* const impl = parameter.unsafeGetTensorImpl();
    const ShardPiece* const piece = gradients_->piece_of(parameter, rank);
    const auto numel = static_cast<std::uint64_t>(parameter.numel());
    if (piece == nullptr || piece->numel() == numel) {
      return;
    }
    const auto state = wrapped_->state().find(impl);
    if (state != wrapped_->state().end()) {
      join_state(fields, gathered.states[impl], *state->second, parameter, piece->begin);
      wrapped_->state().erase(state);
    }
    const auto extra = extras.find(impl);
    if (extra == extras.end()) {
      return;
    }
    StreamedState::Extra& whole = gathered.extras[impl];
    if (extra->second.master.defined()) {
      if (!whole.master.defined()) {
        whole.master = at::empty_strided(parameter.sizes(), parameter.strides(), at::TensorOptions(at::kFloat));
      }
      piece_view(whole.master, piece->begin, piece->end).copy_(extra->second.master);
    }
    if (extra->second.codes.defined()) {
      join_codes(whole.codes, numel, extra->second.codes, piece->begin, piece->end);
    }
    extras.erase(extra);
  });
  gathered.extras.merge(extras);
}

// Each rank writes an archive of what it owns, and puts together those of all.
void Optimizer::save_gathered(torch::serialize::OutputArchive& archive) const {
  RankAgreement& agreement = gradients_->agreement();
  std::string own;
  const std::exception_ptr failure = failure_of([&] {
    torch::serialize::OutputArchive part;
    save_own(part);
    std::ostringstream stream;
    part.save_to(stream);
    own = std::move(stream).str();
  });
  agreement.meet(Purpose::kSave, {}, failure);
  std::vector<std::string> parts = agreement.exchange(own);
  struct Foreign {
    StreamedState& state;
    const std::vector<torch::optim::OptimizerParamGroup>& groups;
    ~Foreign() {
      state.drop_foreign(groups);
      state.drop_states_of_wholes();
      state.clear();
    }
  };
  const Foreign foreign{*state_, param_groups_};
  std::uint64_t bytes = 0;
  for (const std::string& part : parts) {
    bytes += 2 * part.size();
  }
  const offload::Reservation copies = tiers_->host().reserve(bytes, "copy of the optimizer state of all ranks");
  GatheredState gathered;
  for (std::size_t rank = 0; rank < parts.size(); ++rank) {
    std::istringstream stream(std::exchange(parts[rank], {}));
    torch::serialize::InputArchive input;
    input.load_from(stream);
    join_part(input, static_cast<int>(rank), gathered);
  }
  for (auto& [parameter, state] : gathered.states) {
    wrapped_->state()[parameter] = std::move(state);
  }
  wrapped_->save(archive);
  write_extras(archive, gathered.extras);
}

void Optimizer::load(torch::serialize::InputArchive& archive) {
  refuse_if_poisoned();
  follow_groups();
  give_wrapped_all_parameters();
  const StreamedState::Extras extras = read_extras(archive);
  check_extras(extras);
  load_wrapped(archive);
  if (gradients_ != nullptr) {
    state_->drop_foreign(param_groups_);
  }
  take_wrapped_options();
  if (state_ != nullptr) {
    const at::NoGradGuard no_grad;
    poison_on_failure([&] { state_->take_over(extras); });
  }
}

}  // namespace spillway::optimizer
