#pragma once

#include <cstdint>
#include <exception>
#include <functional>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

namespace spillway::distributed {
class Collective;
}

namespace spillway::optimizer {

/// What the ranks meet for.
enum class Purpose : std::uint8_t { kWrap, kStep, kZeroGrad, kUnscale, kClip, kAddGroup, kSave, kLoad };

/// What a rank brings to a meeting.
struct RankNews {
  std::int64_t rounds = 0;      ///< Rounds of gradients that it ran.
  std::int64_t parameters = 0;  ///< That its optimizer has.
  std::int64_t flag = 0;        ///< What the purpose says.
};

/// Where the ranks agree, on a group that nothing else uses while they do: one that fails tells the others, which then
/// fail with its name instead of waiting for it. A world of one agrees with itself. One caller at a time.
class RankAgreement {
 public:
  /// @param group  outlives this; null: a world of one.
  explicit RankAgreement(distributed::Collective* group) : group_(group) {}

  /// Whether a meeting failed for another reason than a rank's own failure: there can be no other one.
  [[nodiscard]] bool over() const noexcept { return over_; }
  [[nodiscard]] int rank() const;
  [[nodiscard]] int world_size() const;

  /// Blocks until all ranks are here. @returns what they bring, in rank order.
  /// @param failure  what this rank failed with meanwhile, null where it did not.
  /// @throws `failure`; Error naming a rank that failed, and its reason; Error where ranks come for different
  /// purposes; what the group throws.
  std::vector<RankNews> meet(Purpose purpose, const RankNews& news, const std::exception_ptr& failure = nullptr);
  /// The texts of all ranks, in rank order.
  std::vector<std::string> exchange(const std::string& text);
  /// The rows of all ranks, of any length, in rank order. @param numbers [n] float64 on the CPU.
  std::vector<at::Tensor> gather(const at::Tensor& numbers);

 private:
  std::vector<at::Tensor> gather_all(const at::Tensor& mine);

  distributed::Collective* group_;
  bool over_ = false;
};

/// "rank 1 failed in step(): …"
[[nodiscard]] std::string rank_failed(int rank, Purpose purpose, const std::string& reason);
/// What `work` throws; null where it ends well, or is none.
[[nodiscard]] std::exception_ptr failure_of(const std::function<void()>& work);
/// The message of an exception.
[[nodiscard]] std::string message_of(const std::exception_ptr& failure);

}  // namespace spillway::optimizer
