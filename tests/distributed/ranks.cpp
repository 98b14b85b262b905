#include "distributed/ranks.hpp"

#include <thread>
#include <utility>

#include "support/child_role.hpp"

namespace spillway::test {

void on_rank_threads(std::vector<std::unique_ptr<distributed::Collective>> ends,
                     const std::function<void(distributed::Collective&)>& body) {
  std::vector<std::jthread> threads;
  for (const auto& end : ends) {
    if (end) {
      threads.emplace_back([&body, &end] { body(*end); });
    }
  }
}

SpawnOptions rank_options(const std::vector<std::string>& arguments, int rank, int world_size, int port,
                          bool rank_0_serves) {
  return {.arguments = arguments,
          .environment = {{"RANK", std::to_string(rank)},
                          {"WORLD_SIZE", std::to_string(world_size)},
                          {"LOCAL_RANK", std::to_string(rank)},
                          {"MASTER_ADDR", "127.0.0.1"},
                          {"MASTER_PORT", std::to_string(port)},
                          {"TORCHELASTIC_USE_AGENT_STORE", rank_0_serves ? "False" : "True"},
                          {"OMP_NUM_THREADS", "1"}}};
}

RankProcesses::RankProcesses(std::string_view role, const std::vector<std::string>& arguments, int world_size,
                             int count) {
  for (int rank = 0; rank < count; ++rank) {
    ranks_.push_back(std::make_unique<Child>(this_program(),
                                             rank_options(as_child(role, arguments), rank, world_size, host_.port())));
  }
}

std::vector<Outcome> RankProcesses::wait() {
  std::vector<Outcome> outcomes;
  for (const auto& rank : ranks_) {
    outcomes.push_back(rank->wait());
  }
  return outcomes;
}

}  // namespace spillway::test
