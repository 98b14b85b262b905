#pragma once

#include <memory>
#include <string>
#include <vector>

#include <spillway/distributed/rendezvous.hpp>

#include "distributed/ranks.hpp"
#include "system/program.hpp"

namespace spillway::test {

/// The program as the ranks of one run, under a launcher that this process plays.
class RankPrograms {
 public:
  /// @param more_on_last  What the last rank is given beside what all are.
  RankPrograms(int world_size, const SpawnOptions& options, const std::vector<std::string>& more_on_last = {}) {
    for (int rank = 0; rank < world_size; ++rank) {
      SpawnOptions own = options;
      own.environment.merge(rank_options({}, rank, world_size, host_.port()).environment);
      if (rank + 1 == world_size) {
        own.arguments.insert(own.arguments.end(), more_on_last.begin(), more_on_last.end());
      }
      ranks_.push_back(std::make_unique<Child>(program(), own));
    }
  }
  Child& rank(std::size_t number) { return *ranks_.at(number); }
  /// Waits for all to end. @returns their outcomes in rank order.
  std::vector<Outcome> wait() {
    std::vector<Outcome> outcomes;
    for (const auto& rank : ranks_) outcomes.push_back(rank->wait());
    return outcomes;
  }

 private:
  distributed::RendezvousHost host_;
  std::vector<std::unique_ptr<Child>> ranks_;
};

}  // namespace spillway::test
