#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <spillway/app/config/config.hpp>
#include <spillway/app/training/optimizer_factory.hpp>
#include <spillway/app/training/run_plan.hpp>
#include <spillway/distributed/collective.hpp>
#include <spillway/distributed/launch.hpp>

namespace spillway::app {

/// What one rank has to say after a step, or what came of what all said.
struct StepNews {
  double loss = 0.0;            ///< All: the mean.
  std::uint64_t off = 0;        ///< Whether the step moved other bytes than predicted. All: on how many ranks.
  std::optional<int> signal{};  ///< That asks to stop. All: the one of the lowest rank that has one.
};

/// The ranks of a run, of which this process is one. All make the same calls in the same order; where one does not come
/// within config.ranks.timeout_s, or is gone, the others throw and name it (distributed::Collective). One caller at a
/// time.
class RunRanks {
 public:
  /// Alone.
  RunRanks();
  /// Meets the others, and sees whether they run the same.
  /// @throws ConfigError naming the first key in which the configurations of two ranks differ; as distributed::connect.
  RunRanks(const Config& config, const distributed::RankEnvironment& environment);

  [[nodiscard]] distributed::Collective& all() noexcept { return *all_; }
  /// The same; null on one rank.
  [[nodiscard]] distributed::Collective* others() noexcept { return alone() ? nullptr : all_.get(); }
  /// Where the ranks have shares of state and gradients.
  [[nodiscard]] GradientGroups gradient_groups() noexcept { return {gradients_.get(), agreement_.get()}; }

  [[nodiscard]] bool alone() const noexcept { return all_->world_size() == 1; }
  /// Whether this is the one that reports, measures, and decides what is decided once.
  [[nodiscard]] bool leads() const noexcept { return all_->rank() == 0; }
  [[nodiscard]] RankPlace place() const noexcept;

  /// The texts of all ranks, in rank order.
  [[nodiscard]] std::vector<std::string> exchange(const std::string& text);
  /// What the lowest rank that failed says, with its number where there are several; nothing where none did.
  /// @param failure  Of this rank; empty: none.
  [[nodiscard]] std::optional<std::string> first_failure(const std::string& failure);
  [[nodiscard]] StepNews agree(const StepNews& own);

 private:
  void compare(const Config& config);

  std::unique_ptr<distributed::Collective> all_;
  std::unique_ptr<distributed::Collective> gradients_;
  std::unique_ptr<distributed::Collective> agreement_;
};

}  // namespace spillway::app
