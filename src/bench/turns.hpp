#pragma once

#include <cstddef>
#include <functional>
#include <vector>

namespace spillway::app {

/// Measures several sides by turns, beginning with another one in each round: none of them is always the first after
/// the others. Each is called once a round with the round's number.
void by_turns(std::size_t rounds, const std::vector<std::function<void(std::size_t)>>& sides);

}  // namespace spillway::app
