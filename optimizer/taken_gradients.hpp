#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>
#include <torch/optim/optimizer.h>

#include <spillway/distributed/collective_lane.hpp>
#include <spillway/offload/budget.hpp>
#include <spillway/offload/parallel.hpp>
#include <spillway/offload/tiers.hpp>
#include <spillway/optimizer/gradient_accumulators.hpp>
#include <spillway/optimizer/gradient_exchange.hpp>
#include <spillway/optimizer/gradient_hooks.hpp>
#include <spillway/optimizer/gradient_rounds.hpp>
#include <spillway/optimizer/gradient_transform.hpp>
#include <spillway/optimizer/parameter_list.hpp>
#include <spillway/optimizer/rank_agreement.hpp>
#include <spillway/optimizer/shard_plan.hpp>
#include <spillway/optimizer/streamed_state.hpp>
#include <spillway/optimizer/weight_publisher.hpp>

namespace spillway::optimizer {

struct TakenGradientsOptions {
  std::string optimizer;                         ///< Its class, which all ranks have alike.
  distributed::Collective* exchange = nullptr;   ///< Of gradients and weights; null, as the next: a world of one.
  distributed::Collective* agreement = nullptr;  ///< Of another group, over the same ranks.
  std::vector<double> weights;                   ///< Of the ranks; empty: all alike.
  std::uint64_t bucket_bytes = 32U << 20;
  /// Whether ranks may own ranges of a parameter's elements, in the order of its memory. Null: of none.
  std::function<bool(const at::Tensor& parameter)> divisible;
  GradientAccumulators::Options sums;
};

/// The gradients of an optimizer's parameters, which hooks take while backward runs and bring to their owners, and the
/// step over them (ZeRO-2). What is said of ranks holds for a world of one, too, which has no wire.
///
/// One thread at a time calls, and not while a backward pass runs; take() is for hooks. All ranks make the same calls
/// in the same order, and each call blocks until they do: a rank that fails makes all fail with its name, one that does
/// not come makes the others fail at the groups' deadline.
class TakenGradients final : public GradientSink {
 public:
  using ParamGroups = ParameterList::ParamGroups;
  using Work = std::function<void()>;

  /// Compares the ranks' parameters, plans, and sets the hooks. The groups outlive this.
  /// @throws ConfigError for weights or groups that can't be right, a parameter whose gradient somebody else takes, or
  /// parameters or options that differ between ranks: the first difference.
  TakenGradients(const ParamGroups& groups, std::shared_ptr<offload::Tiers> tiers, TakenGradientsOptions options);
  ~TakenGradients() override;

  /// Makes room for the sums of what this rank owns, then runs `work`. @throws what they throw; BudgetExceeded or
  /// OutOfSpace where there is no room; Error where that happened on another rank.
  void make_room(const Work& work);

  /// Where the optimizer's state is: @see StreamedStateOptions.
  [[nodiscard]] std::optional<OwnedShard> shard_of(const at::Tensor& parameter) const;
  /// The same for another rank, without the part of the model.
  [[nodiscard]] const ShardPiece* piece_of(const at::Tensor& parameter, int rank) const;
  /// Whether this rank owns the parameter and has a gradient for it. Between rounds only.
  [[nodiscard]] bool has_gradient(const at::Tensor& parameter) const;

  /// Runs `before`, waits until every gradient is where it belongs, the ranks' rounds made even, plans parameters of
  /// `groups` that are new, and runs `after`. @throws what those throw, on this rank or another; what the groups throw,
  /// or a sum that could not be added to: fatal() then.
  void synchronise(Purpose purpose, const ParamGroups& groups, const Work& before = {}, const Work& after = {});

  /// Updates what this rank owns and publishes it; uses the gradients up. After synchronise().
  /// @throws what an update throws, on this rank or another: weights are part-updated then.
  void step(StreamedState& state);

  /// Multiplies the gradients by `inverse_scale`, rounded to float32, from now on. After synchronise().
  /// @returns whether a gradient on some rank was infinite or NaN before.
  bool unscale(double inverse_scale);
  /// Clips the gradients from now on. After synchronise(). @returns the norm before. @see optimizer::clip_grad_norm_.
  double clip_norm(double max_norm);
  void clip_value(double limit);
  /// @see Optimizer::find_non_finite_gradient. After synchronise().
  [[nodiscard]] at::Tensor find_non_finite();

  /// Drops the gradients. After synchronise(). @param keep_zeros  parameters that had one have zeros then.
  void drop(bool keep_zeros);
  /// Lets the gradients go that a step would have used.
  void use_up();

  [[nodiscard]] RankAgreement& agreement() noexcept { return agreement_; }
  /// Whether an error has left gradients or weights that are not what they should be.
  [[nodiscard]] bool fatal() const noexcept { return fatal_ || agreement_.over(); }
  [[nodiscard]] std::uint64_t host_bytes() const noexcept { return sums_.host_bytes() + staging_.bytes(); }
  [[nodiscard]] std::uint64_t disk_bytes() const noexcept { return sums_.disk_bytes(); }
  [[nodiscard]] std::uint64_t owned_numel() const { return plan_.owned_numel(agreement_.rank()); }

  // GradientSink
  void take(std::size_t parameter, at::Tensor gradient) override;
  void backward_ended() override;

 private:
  struct Squares {
    bool finite = true;
    std::vector<double> rows;  ///< For each slot with a gradient: parameter, where it begins, how many sums, the sums.
  };

  [[nodiscard]] bool is_divisible(const at::Tensor& parameter) const;
  void plan(const ParamGroups& groups);
  void compare_with_other_ranks(std::size_t first);
  void make_room_for_sums(std::size_t first_bucket);
  void catch_up(std::int64_t rounds);
  [[nodiscard]] std::exception_ptr wait_for_lane();
  void launch(std::size_t bucket, std::vector<at::Tensor> gradients);
  void refuse_late_gradients() const;

  [[nodiscard]] std::vector<GradientTransform> all_transforms() const;
  [[nodiscard]] static at::Tensor sum_of(const GradientAccumulators::Sum& sum);
  [[nodiscard]] at::Tensor gradient_of(const GradientAccumulators::Sum& sum, const ParameterSlot& slot,
                                       std::span<const GradientTransform> transforms) const;
  void step_bucket(std::size_t bucket, StreamedState& state, const std::vector<std::size_t>& units,
                   BucketUpdate& update);
  [[nodiscard]] Squares measure();
  [[nodiscard]] bool holds_gradients();

  std::shared_ptr<offload::Tiers> tiers_;  // Shared with other clients of the same memory and disk.
  TakenGradientsOptions options_;
  RankAgreement agreement_;
  ParameterList parameters_;
  ShardPlan plan_;
  GradientAccumulators sums_;
  offload::Parallel parallel_;    // For norms and transforms.
  offload::Reservation staging_;  // For what travels.
  std::unique_ptr<GradientExchange> exchange_;
  std::unique_ptr<WeightPublisher> publisher_;  // Null in a world of one.
  std::vector<GradientTransform> transforms_;   // Since the last step, in their order.
  std::optional<Squares> measured_;             // Of the gradients as they are now.
  std::uint64_t seen_rounds_ = 0;               // By the last synchronise().
  std::uint64_t transformed_rounds_ = 0;        // By the first of the transforms.
  bool fatal_ = false;
  std::unique_ptr<GradientRounds> rounds_;
  std::unique_ptr<distributed::CollectiveLane> lane_;
  std::unique_ptr<GradientHooks> hooks_;  // Last: nothing comes when the rest goes.
};

}  // namespace spillway::optimizer
