#pragma once

#include <chrono>
#include <exception>
#include <functional>

#include <gtest/gtest.h>

#include <distributed/ranks.hpp>
#include <spillway/distributed/thread_collective.hpp>

namespace spillway::test {

/// Runs `body` on `world_size` ranks that are threads of this process. What it throws is a failure of the test.
inline void on_ranks(int world_size, const std::function<void(distributed::Collective&)>& body) {
  on_rank_threads(distributed::make_thread_group(world_size, std::chrono::seconds(30)),
                  [&](distributed::Collective& ranks) {
                    try {
                      body(ranks);
                    } catch (const std::exception& error) {
                      ADD_FAILURE() << "rank " << ranks.rank() << ": " << error.what();
                    }
                  });
}

}  // namespace spillway::test
