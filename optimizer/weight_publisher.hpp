#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include <spillway/optimizer/parameter_list.hpp>
#include <spillway/optimizer/shard_plan.hpp>

namespace spillway::distributed {
class Collective;
}

namespace spillway::optimizer {

/// What a rank says with a bucket of weights.
struct BucketUpdate {
  std::vector<bool> updated;           ///< For each piece that this rank owns, in their order.
  std::optional<std::string> failure;  ///< Why there are no weights to publish: the step ends on all ranks.
};

/// Brings weights that their owners have updated to the other ranks, bucket by bucket. What is not updated does not
/// travel. A message begins with a byte that says whether its rank failed; if so, the reason follows, else a byte for
/// each piece, then the weights that are updated, each from a multiple of 16 bytes on. Used by one thread at a time.
class WeightPublisher {
 public:
  /// All outlive this. @param group  of more ranks than one.
  WeightPublisher(const ShardPlan& plan, const ParameterList& parameters, distributed::Collective& group);

  /// Publishes a bucket, unless a rank has failed in this step. @throws what the group throws.
  void run(std::size_t bucket, const BucketUpdate& update);

  struct Failure {
    int rank = 0;
    std::string reason;
  };
  /// The first rank that failed.
  [[nodiscard]] const std::optional<Failure>& failure() const noexcept { return failure_; }
  /// Host memory that run() takes at most.
  [[nodiscard]] std::uint64_t staging_bytes() const;

 private:
  [[nodiscard]] at::Tensor pack(std::size_t bucket, const BucketUpdate& update) const;
  void unpack(std::size_t bucket, int from, const at::Tensor& message);

  const ShardPlan& plan_;
  const ParameterList& parameters_;
  distributed::Collective& group_;
  std::optional<Failure> failure_;
};

}  // namespace spillway::optimizer
