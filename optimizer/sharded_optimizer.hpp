#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include <torch/optim/optimizer.h>

#include <spillway/offload/parallel.hpp>
#include <spillway/offload/tiers.hpp>
#include <spillway/optimizer/shard_plan.hpp>
#include <spillway/optimizer/state_fields.hpp>
#include <spillway/optimizer/streamed_state.hpp>

namespace spillway::distributed {
class Collective;
}

namespace spillway::optimizer {

class TakenGradients;
struct GatheredState;
enum class Purpose : std::uint8_t;

/// Where gradients that are taken are added up, on this rank.
struct GradientPlacement {
  std::uint64_t owned_numel = 0;  ///< Elements of parameters that this rank owns.
  std::uint64_t host_bytes = 0;   ///< What travels included.
  std::uint64_t disk_bytes = 0;
};

/// Where the optimizer state lives between steps.
enum class StateDevice : std::uint8_t {
  kNone,  ///< Where LibTorch puts it: beside the parameters. The wrapper passes everything through.
  kCpu,   ///< In host memory, within its budget.
  kNvme,  ///< As much as the budget holds in host memory, the rest in a swap file, read ahead of use.
};

/// Who computes an update.
enum class UpdateKernels : std::uint8_t {
  kLibTorch,  ///< LibTorch's own step: bit for bit the plain optimizer.
  kFused,     ///< Fused kernels where there are some, LibTorch's step for what is left.
};

/// Where gradients go once they are complete.
enum class GradientDevice : std::uint8_t {
  kInPlace,  ///< They stay in `.grad`.
  kCpu,      ///< Hooks take them: they are added up in host memory, on the rank that owns the parameter.
  kNvme,     ///< The same, in a swap file, read ahead of use; host memory holds staging buffers alone.
};

struct OptimizerConfig {
  StateDevice state = StateDevice::kNvme;
  /// kFused updates in one pass over memory, for Adam, AdamW, SGD and Adagrad of LibTorch and float32, bfloat16 and
  /// float16 parameters that are dense and on the CPU; one line in the log says what LibTorch updates instead, and why.
  /// A step's weights are within 4 ulp of max(|w|, |Δw|) of LibTorch's formula evaluated exactly; the state is float32
  /// unless state_format says otherwise. Gradients that are taken are read from their float32 sums, and scaled and
  /// clipped in the pass of the update. Needs the state in blocks.
  UpdateKernels kernels = UpdateKernels::kLibTorch;
  StateFormat state_format = StateFormat::kFloat32;  ///< Of parameters that kernels update.
  MasterFormat masters = MasterFormat::kNone;        ///< Of 16-bit parameters, which kernels have to be able to update.
  /// Other than kInPlace: `.grad` is taken while backward runs and is undefined afterwards. Sums are float32, or
  /// float64 for parameters of it, whatever the parameters' type; a step takes those of all backward passes since the
  /// last one, over the ranks their mean. Optimizer::clip_grad_norm_ takes the place of the free function, and
  /// Optimizer's zero_grad of the model's, for gradients that no step is to take.
  GradientDevice gradients = GradientDevice::kInPlace;
  /// With gradients that are taken: two groups over the same ranks, used for nothing else, which outlive the optimizer.
  /// Each rank owns a share of the parameters, with their gradients and state. Null, both: one rank.
  distributed::Collective* gradient_group = nullptr;
  distributed::Collective* agreement_group = nullptr;  ///< Waited on while gradients travel on the other one.
  /// Shares of the ranks, one for each: a rank with more memory may own more. Empty: all alike. Weights do not depend
  /// on it in any bit.
  std::vector<double> shard_weights;
  /// What one rank owns at least. kBlock: parameters of more than 16,384 elements are cut between the ranks, at
  /// multiples of that, where the update is element by element (@see StateFields::element_wise) and the elements lie
  /// dense in memory; 16-bit ones where kernels update them. Others are owned as a whole.
  ShardGranularity shard_granularity = ShardGranularity::kBlock;
  std::uint64_t bucket_bytes = 32U << 20;  ///< Gradients that travel together.
  /// Gradients of 16-bit parameters that are taken stay in 16 bits, which is half of the room, and are widened as the
  /// update reads them. For one rank and one backward pass a step, where nothing is added, so that no bit changes: sums
  /// are float32 on several ranks, and from the first second pass on, for which the budgets need room beside the
  /// gradients.
  bool narrow_gradients = false;
  /// Elements of the parameters that are updated together, cut at whole tensors. 0: a size chosen from the budget.
  std::uint64_t sub_group_numel = 0;
  unsigned buffer_count = 4;  ///< Staging buffers of a sub-group each; at least 2.
  /// Host memory for the state, staging buffers included. Unlimited means what the tiers' budget has left; kNvme where
  /// that is unlimited too keeps nothing but the staging buffers in host memory.
  std::uint64_t host_bytes = offload::kUnlimitedBytes;
  std::string nvme_path;  ///< Folder of the swap file; takes the place of tiers_options.nvme_path.
  /// What a step's state consists of, for an optimizer that LibTorch does not have. Null: one of LibTorch's.
  std::shared_ptr<const StateFields> state_fields;
  offload::TiersOptions tiers_options;    ///< What the tiers are made from where `tiers` is null.
  std::shared_ptr<offload::Tiers> tiers;  ///< Memory and disk shared with other clients, such as a bank.
};

/// A tensor of the state that is wanted: of all of a parameter or of elements of it, in the order of its memory.
struct StatePiece {
  std::string name;      ///< @see Optimizer::visit_state.
  at::Tensor parameter;  ///< All of it.
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
};

/// An optimizer of LibTorch whose state is kept elsewhere and streamed through each step; made by wrap(). It owns the
/// parameter groups, so that LibTorch's schedulers, zero_grad and add_param_group work on it; their options count from
/// the next step on. Weights are the same bits wherever the state lives, and with UpdateKernels::kLibTorch those of the
/// wrapped optimizer alone. Its own state() map stays empty: the state is in blocks. One caller at a time.
class Optimizer final : public torch::optim::Optimizer {
 public:
  /// @see wrap.
  Optimizer(std::unique_ptr<torch::optim::Optimizer> wrapped, OptimizerConfig config);
  ~Optimizer() override;

  /// Calls the closure once, with gradients enabled, then updates every parameter that has a gradient, sub-group by
  /// sub-group. Blocks on reads that were not hidden; the last writes go on in the background.
  /// @returns the closure's loss, an undefined tensor without one.
  /// With gradients that are taken every rank calls it, and all have the same weights afterwards; what one of them
  /// throws makes the others throw Error with its name and reason.
  /// @throws ConfigError where a group's options ask for state that there is no room for (momentum or amsgrad turned
  /// on since wrap), Error for a sparse gradient or, with fused kernels, a parameter that is not what it was or a
  /// gradient that is not like it, BudgetExceeded or OutOfSpace for parameters that are new: nothing has changed then.
  /// What I/O (IoError, Corruption, TimedOut) or LibTorch throws in the middle leaves weights part-updated: each later
  /// step() then throws Error with that reason.
  at::Tensor step(LossClosure closure = nullptr) override;

  /// step() with gradients that are scaled and limited in the pass of the update, which fused kernels do at no cost;
  /// `.grad` itself stays as backward() left it. For GradScaler::step and step_clipped().
  void step_scaled(const GradientScale& scale);
  /// clip_grad_norm_() and step() in two passes over the gradients instead of three: `.grad` is not changed.
  /// @returns the norm before. @throws as both.
  double step_clipped(double max_norm);

  /// As LibTorch's, and prefetch(). Where gradients are taken, drops those that came since the last step; all ranks
  /// call it alike.
  void zero_grad(bool set_to_none = true);
  /// As LibTorch's; room for the state of parameters that want gradients is made at once, with staging buffers of its
  /// own, from what the budget has left: a budget that the state so far fills has nothing left.
  /// @throws what LibTorch throws for it; BudgetExceeded or OutOfSpace: the group is not added then.
  void add_param_group(const torch::optim::OptimizerParamGroup& group);

  /// The parameters of all groups, a tied one once.
  [[nodiscard]] std::vector<at::Tensor> all_parameters() const;

  /// Clips the gradients of all groups' parameters together. @see optimizer::clip_grad_norm_, clip_grad_value_.
  /// Where gradients are taken all ranks call it, once before the step, and it counts for all shards. Gradients whose
  /// norm is not finite stay as they are, so that it can be found out which.
  double clip_grad_norm_(double max_norm);
  void clip_grad_value_(double limit);

  [[nodiscard]] bool takes_gradients() const noexcept { return gradients_ != nullptr; }
  /// For GradScaler, where gradients are taken; all ranks call it. Multiplies them by `inverse_scale`.
  /// @returns whether one of them was infinite or NaN on some rank.
  bool unscale_gradients(double inverse_scale);
  /// Takes the place of step() where it is not to be made: gradients that were taken are dropped, and what was read
  /// ahead of the step is read anew for the next one.
  void skip_step();
  /// Which parameter has an infinite or NaN element in its gradient, the first in the order of the groups; undefined
  /// where none has. Of gradients that are taken those are looked at that this rank owns, after clip_grad_norm_() or
  /// unscale_gradients(), and in no exchange with other ranks.
  [[nodiscard]] at::Tensor find_non_finite_gradient();

  using MasterObserver = std::function<void(const at::Tensor& parameter, const at::Tensor& master)>;
  /// Has `observer` see each master that a step has changed, within that step, while it is in memory anyway: for a
  /// moving average of weights as they are before their rounding to 16 bits. @param observer  gets the parameter as
  /// groups list it and its master as float32, of the parameter's size, valid during the call; nothing of parameters
  /// that are cut between ranks. Null: nobody does. What it throws makes the step fail half-way.
  void observe_masters(MasterObserver observer);

  /// Starts to read the state of the first sub-groups of the next step and returns at once. step() does so itself where
  /// nobody did.
  void prefetch();
  /// Blocks until every write of earlier steps has reached the file. @throws IoError.
  void flush();

  /// What the next step reads and writes, if each parameter with state gets a gradient: a sub-group that was never
  /// updated is not read.
  [[nodiscard]] StepBytes next_step_bytes() const;
  /// The same once every sub-group has been updated.
  [[nodiscard]] StepBytes steady_step_bytes() const;
  /// What prefetch() reads at once in the steady case, and a skipped step therefore in vain.
  [[nodiscard]] std::uint64_t read_ahead_bytes() const;
  /// Zeros with StateDevice::kNone.
  [[nodiscard]] StatePlacement placement() const;
  /// Zeros where gradients stay in place.
  [[nodiscard]] GradientPlacement gradient_placement() const;
  /// Null with StateDevice::kNone.
  [[nodiscard]] const std::shared_ptr<offload::Tiers>& tiers() const noexcept { return tiers_; }
  [[nodiscard]] const torch::optim::Optimizer& wrapped() const noexcept { return *wrapped_; }

  /// LibTorch's archive of the wrapped optimizer, interchangeable with that of the plain one. The state is copied to
  /// memory meanwhile, decoded to float32 where kernels have another form for it. Beside it stand what LibTorch's own
  /// load passes over: "masters", as float32 tensors "group/index", and "codes", the bytes of state in 8 bits, so that
  /// it comes back bit for bit. Shards are gathered: all ranks call save(), and each gets the whole archive; load()
  /// takes it on all of them. @throws BudgetExceeded where the host budget has no room for the copy.
  void save(torch::serialize::OutputArchive& archive) const override;
  /// From an archive of either. Masters that it has not stay what they are, and follow the parameters as ever: the
  /// model's weights may be loaded before or after. @throws Error for masters of another size, before anything changed.
  void load(torch::serialize::InputArchive& archive) override;

  using StateVisitor = std::function<void(const std::string& name, const at::Tensor& tensor)>;
  /// The state piece by piece, for a checkpoint of a state that memory does not hold: sub-group by sub-group, each
  /// tensor as it lies in its block, bit for bit. @param visit  gets "group/index.name" (that of the parameter in its
  /// group, and LibTorch's of the tensor) and the tensor, of the parameter's size or a row of bytes for state in 8
  /// bits, which is valid during the call.
  /// Where the state is spread over ranks it is what this rank owns, here and in the functions that follow: of a
  /// parameter that is cut, "group/index[begin:end].name", elements in the order of its memory. SavedPieces puts what
  /// all ranks saved together for any other number. No rank waits for another. What is no tensor, such as step counts
  /// and options, is in save_counters(). @throws IoError.
  void visit_state(const StateVisitor& visit);
  /// The names, dtypes and sizes that visit_state() will show, in its order; nothing is read, and the tensors have no
  /// values to look at.
  void list_state(const StateVisitor& visit) const;
  /// Undoes visit_state(), after load_counters() and on an optimizer of the same options and formats.
  /// @param read  gives the tensor of that name, undefined where there is none.
  /// @throws Error naming what is missing or not of the size and type that it was here, and what `read` throws: the
  /// state may be part-loaded then, and later steps throw.
  void restore_state(const std::function<at::Tensor(const StatePiece& piece)>& read);
  /// LibTorch's archive of the wrapped optimizer without the state's tensors.
  void save_counters(torch::serialize::OutputArchive& archive) const;
  /// @param archives  of all ranks that saved, or of the one where they did not share the state.
  void load_counters(std::span<torch::serialize::InputArchive> archives);

 private:
  void follow_groups();
  void give_wrapped_all_parameters() const;
  void load_wrapped(torch::serialize::InputArchive& archive) const;
  void refuse_if_poisoned() const;
  void poison_on_failure(const std::function<void()>& work);
  void write_extras(torch::serialize::OutputArchive& archive, const StreamedState::Extras& extras) const;
  void write_extras(torch::serialize::OutputArchive& archive, const char* name, const StreamedState::Extras& extras,
                    at::Tensor StreamedState::Extra::*member) const;
  [[nodiscard]] StreamedState::Extras read_extras(torch::serialize::InputArchive& archive) const;
  void check_extras(const StreamedState::Extras& extras) const;
  void for_each_parameter(const std::function<void(const std::string&, const at::Tensor&)>& work) const;
  void poison_if_fatal(const std::function<void()>& work);
  double clip_in_place(double max_norm);
  void make_state(const OptimizerConfig& config);
  [[nodiscard]] std::function<bool(const at::Tensor&)> divisible(const OptimizerConfig& config) const;
  void join_part(torch::serialize::InputArchive& part, int rank, GatheredState& gathered) const;
  at::Tensor step_taken(LossClosure closure);
  void synchronise(Purpose purpose);
  void save_own(torch::serialize::OutputArchive& archive) const;
  void give_wrapped_options() const;
  void take_wrapped_options();
  using ParameterNames = std::unordered_map<const c10::TensorImpl*, std::string>;
  [[nodiscard]] ParameterNames parameter_names() const;
  [[nodiscard]] static std::string slot_name(const ParameterNames& names, const ParameterSlot& slot);
  [[nodiscard]] const StateFields& memory_fields() const;
  using MemoryVisitor =
      std::function<void(const StatePiece& piece, const at::Tensor& parameter, at::Tensor& state_tensor)>;
  [[nodiscard]] bool is_sharded() const;
  void walk_in_memory(const MemoryVisitor& work) const;
  void visit_in_memory(const StateVisitor& visit) const;
  void save_gathered(torch::serialize::OutputArchive& archive) const;

  std::unique_ptr<torch::optim::Optimizer> wrapped_;
  std::shared_ptr<offload::Tiers> tiers_;          // Shared: the bank streams over the same disk and budget.
  const bool in_memory_;                           // StateDevice::kNone.
  std::shared_ptr<const StateFields> own_fields_;  // Shared with whoever wraps several optimizers of that kind.
  std::unique_ptr<TakenGradients> gradients_;      // Null where they stay in place.
  std::unique_ptr<StreamedState> state_;           // Null with StateDevice::kNone and gradients in place.
  offload::Parallel parallel_;                     // For the norm of gradients in place.
  std::string poison_;                             // Why the optimizer is unusable; empty while it is not.
};

/// Wraps an optimizer that was already constructed, and possibly stepped: its state is taken over.
/// @throws ConfigError for a null optimizer, one of a kind whose state is not known (LBFGS; a subclass without
/// state_fields), a buffer_count below 2, kNvme without a path, fused kernels with kNone, a state_format or masters
/// that can't be had, weights or groups that can't be right, a parameter whose gradients another wrapper takes, ranks
/// whose parameters differ (the first difference); IoError for a path that is missing or not writable; BudgetExceeded,
/// with a table, where the host budget holds not even the staging buffers; OutOfSpace where the disk does not hold the
/// rest.
[[nodiscard]] std::unique_ptr<Optimizer> wrap(std::unique_ptr<torch::optim::Optimizer> optimizer,
                                              OptimizerConfig config = {});

}  // namespace spillway::optimizer

namespace spillway {
using optimizer::GradientDevice;
using optimizer::GradientPlacement;
using optimizer::MasterFormat;
using optimizer::Optimizer;
using optimizer::OptimizerConfig;
using optimizer::ShardGranularity;
using optimizer::StateDevice;
using optimizer::StateFields;
using optimizer::StateFormat;
using optimizer::StatePlacement;
using optimizer::StepBytes;
using optimizer::UpdateKernels;
using optimizer::wrap;
}  // namespace spillway
