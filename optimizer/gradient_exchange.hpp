#pragma once

#include <cstddef>
#include <exception>
#include <span>
#include <vector>

#include <ATen/core/Tensor.h>

#include <spillway/optimizer/gradient_accumulators.hpp>
#include <spillway/optimizer/parameter_list.hpp>
#include <spillway/optimizer/shard_plan.hpp>

namespace spillway::distributed {
class Collective;
}

namespace spillway::optimizer {

/// Brings the gradients of a bucket to their owners, who add them in the order of ranks. A message from one rank to
/// another begins with a byte for each piece that the other owns, which says whether there is a gradient; those that
/// there are follow, each from a multiple of 16 bytes on, in its parameter's type. Ranks own whole gradients or ranges
/// of their elements. Used by one thread at a time.
class GradientExchange {
 public:
  /// All outlive this. @param group  null: a world of one.
  GradientExchange(const ShardPlan& plan, const ParameterList& parameters, GradientAccumulators& sums,
                   distributed::Collective* group);

  /// Sends the bucket's gradients, one for each of its parameters in their order, undefined where there is none, and
  /// adds what comes. Where a sum can't be added to, this rank goes on to send and to receive what others wait for.
  /// @throws what the group throws.
  void run(std::size_t bucket, std::vector<at::Tensor> gradients);

  /// Why sums of this rank are not what they should be; null while they are.
  [[nodiscard]] const std::exception_ptr& failure() const noexcept { return failure_; }
  /// Host memory that run() takes at most for what travels.
  [[nodiscard]] std::uint64_t staging_bytes() const;

 private:
  /// For each piece of the bucket that this rank owns, in their order, what the ranks have for it.
  using Terms = std::vector<std::vector<at::Tensor>>;

  void lay_in_rows(std::size_t bucket, std::vector<at::Tensor>& gradients) const;
  [[nodiscard]] at::Tensor part_of(const ShardPiece& piece, const at::Tensor& gradient) const;
  [[nodiscard]] at::Tensor pack(std::size_t bucket, int owner, std::span<const at::Tensor> gradients) const;
  void unpack(std::size_t bucket, int from, const at::Tensor& message, Terms& terms) const;
  void keep(std::size_t bucket, std::span<const at::Tensor> gradients, Terms& terms) const;
  void add(std::size_t bucket, const Terms& terms);

  const ShardPlan& plan_;
  const ParameterList& parameters_;
  GradientAccumulators& sums_;
  distributed::Collective* group_;
  int rank_;
  std::exception_ptr failure_;
};

/// A slot for the sum of what a piece has of a parameter's gradients.
[[nodiscard]] SumSlot make_sum_slot(const ShardPiece& piece, const ListedParameter& parameter);

}  // namespace spillway::optimizer
