#include <spillway/app/bench/turns.hpp>

namespace spillway::app {

void by_turns(std::size_t rounds, const std::vector<std::function<void(std::size_t)>>& sides) {
  for (std::size_t round = 0; round < rounds; ++round) {
    for (std::size_t turn = 0; turn < sides.size(); ++turn) {
      sides[(round + turn) % sides.size()](round);
    }
  }
}

}  // namespace spillway::app
