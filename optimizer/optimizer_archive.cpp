// How a wrapped optimizer is saved and loaded: as LibTorch's archive of the one that it wraps.
#include <sstream>
#include <string>
#include <vector>

#include <ATen/core/grad_mode.h>
#include <torch/serialize/archive.h>

#include <spillway/optimizer/rank_agreement.hpp>
#include <spillway/optimizer/sharded_optimizer.hpp>
#include <spillway/optimizer/taken_gradients.hpp>

namespace spillway::optimizer {

void Optimizer::save(torch::serialize::OutputArchive& archive) const {
  refuse_if_poisoned();
  give_wrapped_all_parameters();
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
    explicit Copies(StreamedState& from) : state(from) { state.copy_out(); }
    ~Copies() { state.clear(); }
  };
  const Copies copies(*state_);
  wrapped_->save(archive);
}

// Each rank writes an archive of what it owns. LibTorch's load() adds what an archive has to what an optimizer has, so
// that they make one whole.
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
  const std::vector<std::string> parts = agreement.exchange(own);
  struct Foreign {
    StreamedState& state;
    const std::vector<torch::optim::OptimizerParamGroup>& groups;
    ~Foreign() {
      state.drop_foreign(groups);
      state.clear();
    }
  };
  const Foreign foreign{*state_, param_groups_};
  std::uint64_t bytes = 0;
  for (const std::string& part : parts) {
    bytes += 2 * part.size();
  }
  const offload::Reservation copies = tiers_->host().reserve(bytes, "copy of the optimizer state of all ranks");
  for (const std::string& part : parts) {
    std::istringstream stream(part);
    torch::serialize::InputArchive input;
    input.load_from(stream);
    wrapped_->load(input);
  }
  wrapped_->save(archive);
}

void Optimizer::load(torch::serialize::InputArchive& archive) {
  refuse_if_poisoned();
  follow_groups();
  give_wrapped_all_parameters();
  wrapped_->load(archive);
  if (gradients_ != nullptr) {
    state_->drop_foreign(param_groups_);
  }
  for (std::size_t g = 0; g < param_groups_.size(); ++g) {
    param_groups_[g].set_options(wrapped_->param_groups()[g].options().clone());
  }
  if (state_ != nullptr) {
    const at::NoGradGuard no_grad;
    poison_on_failure([&] { state_->take_over(); });
  }
}

}  // namespace spillway::optimizer
