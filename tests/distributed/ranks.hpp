#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <spillway/distributed/collective.hpp>
#include <spillway/distributed/rendezvous.hpp>

#include "support/spawn.hpp"

namespace spillway::test {

/// Runs `body` on the ends of a thread group, one thread each, and joins them. Null ends are ranks that take no part.
void on_rank_threads(std::vector<std::unique_ptr<distributed::Collective>> ends,
                     const std::function<void(distributed::Collective&)>& body);

/// Ranks as processes of this machine, started anew, that meet at a store which this process serves: as under torchrun.
/// Each plays a role of this test program.
class RankProcesses {
 public:
  /// Starts `count` ranks of a world of `world_size` (fewer, where the others are to be missing).
  RankProcesses(std::string_view role, const std::vector<std::string>& arguments, int world_size, int count);
  RankProcesses(std::string_view role, const std::vector<std::string>& arguments, int world_size)
      : RankProcesses(role, arguments, world_size, world_size) {}

  [[nodiscard]] Child& rank(int number) { return *ranks_.at(static_cast<std::size_t>(number)); }
  /// Waits for all to end. @returns their outcomes in rank order.
  [[nodiscard]] std::vector<Outcome> wait();

 private:
  distributed::RendezvousHost host_;
  std::vector<std::unique_ptr<Child>> ranks_;
};

/// What rank `rank` of a world is started with. `port` is that of a store which the launcher serves, or rank 0 where
/// `rank_0_serves`.
SpawnOptions rank_options(const std::vector<std::string>& arguments, int rank, int world_size, int port,
                          bool rank_0_serves = false);

}  // namespace spillway::test
