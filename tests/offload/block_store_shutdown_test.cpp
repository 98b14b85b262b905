// A store can be left in any state: nothing is in flight afterwards, and everything is given back.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include <spillway/offload/error.hpp>

#include "store_fixture.hpp"

namespace spillway::offload::block_store_shutdown_test {
namespace {

using test::MemoryEngine;
using test::MemoryTiers;
using Ending = MemoryEngine::Ending;
using Fate = MemoryEngine::Fate;

constexpr std::uint64_t kBlock = kPageBytes;

struct Client {
  MemoryEngine& engine;
  BlockStore& store;
  std::vector<BlockId> ids;
};

struct State {
  std::string name;
  std::function<void(Client&)> reach;
};

void poison(Client& client) {
  client.engine.set_fate([](std::uint64_t, const IoRequest&) { return Fate::kFailed; });
}

template <typename Action>
void expect_error(Action action) {
  EXPECT_THROW(action(), Error);
}

std::vector<State> calm_states() {
  return {
      {"untouched", [](Client&) {}},
      {"writing back", [](Client& c) { c.store.acquire(c.ids[0], Access::kReadWrite).release(); }},
      {"reading ahead", [](Client& c) { c.store.begin(c.ids, Access::kRead); }},
      {"in the middle of a pass",
       [](Client& c) {
         c.store.begin(c.ids, Access::kReadWrite);
         c.store.acquire(c.ids[0], Access::kReadWrite).release();
         c.store.acquire(c.ids[1], Access::kReadWrite).abandon();
       }},
      {"pass given up",
       [](Client& c) {
         c.store.begin(c.ids, Access::kReadWrite);
         c.store.acquire(c.ids[0], Access::kReadWrite).release();
         c.store.begin({}, Access::kRead);
       }},
      {"pass given up twice",
       [](Client& c) {
         c.store.begin(c.ids, Access::kRead);
         c.store.begin(std::vector(c.ids.rbegin(), c.ids.rend()), Access::kReadWrite);
       }},
      {"out of order beside a pass",
       [](Client& c) {
         c.store.begin(std::span(c.ids).first(4), Access::kReadWrite);
         c.store.acquire(c.ids[5], Access::kReadWrite).release();
       }},
      {"moving to disk",
       [](Client& c) {
         const BlockId id = c.store.add(kBlock, Tier::kHost, "resident");
         c.store.acquire(id, Access::kReadWrite).release();
         c.store.commit();
         c.store.set_home(id, Tier::kDisk);
       }},
      {"removed while it is written back",
       [](Client& c) {
         c.store.acquire(c.ids[0], Access::kReadWrite).release();
         c.store.remove(c.ids[0]);
       }},
      {"committed and changed again",
       [](Client& c) {
         c.store.acquire(c.ids[0], Access::kReadWrite).release();
         c.store.commit();
         c.store.acquire(c.ids[0], Access::kReadWrite).release();
       }},
      {"rolled back in a pass",
       [](Client& c) {
         c.store.begin(c.ids, Access::kReadWrite);
         c.store.acquire(c.ids[0], Access::kReadWrite).release();
         c.store.roll_back();
         c.store.begin(c.ids, Access::kReadWrite);
       }},
  };
}

std::vector<State> states_of_distress() {
  return {
      {"deadline passed",
       [](Client& c) {
         c.engine.set_ending(Ending::kByHand);
         expect_error([&] { static_cast<void>(c.store.acquire(c.ids[0], Access::kReadWrite)); });
       }},
      {"deadline passed in a pass",
       [](Client& c) {
         c.engine.set_ending(Ending::kByHand);
         c.store.begin(c.ids, Access::kReadWrite);
         expect_error([&] { static_cast<void>(c.store.acquire(c.ids[0], Access::kReadWrite)); });
       }},
      {"a read failed",
       [](Client& c) {
         poison(c);
         c.store.begin(c.ids, Access::kReadWrite);
         expect_error([&] { static_cast<void>(c.store.acquire(c.ids[0], Access::kReadWrite)); });
         expect_error([&] { static_cast<void>(c.store.acquire(c.ids[0], Access::kReadWrite)); });
       }},
      {"a write-back failed",
       [](Client& c) {
         poison(c);
         c.store.acquire(c.ids[0], Access::kOverwrite).release();
         expect_error([&] { c.store.flush(); });
       }},
      {"a write-back was refused",
       [](Client& c) {
         Lease first = c.store.acquire(c.ids[0], Access::kOverwrite);
         Lease second = c.store.acquire(c.ids[1], Access::kOverwrite);
         poison(c);
         first.release();
         c.engine.end_all();
         expect_error([&] { second.release(); });
       }},
      {"closed",
       [](Client& c) {
         c.store.begin(c.ids, Access::kReadWrite);
         c.store.close();
         expect_error([&] { static_cast<void>(c.store.acquire(c.ids[0], Access::kReadWrite)); });
       }},
  };
}

// Ends what the test holds back, as a disk does sooner or later.
class Sooner {
 public:
  explicit Sooner(MemoryEngine& engine) : engine_(engine) {}
  Sooner(const Sooner&) = delete;
  Sooner& operator=(const Sooner&) = delete;
  ~Sooner() { engine_.set_ending(Ending::kOnDemand); }

 private:
  MemoryEngine& engine_;
};

TEST(BlockStoreShutdown, IsCleanFromEveryState) {
  std::vector<State> states = calm_states();
  for (State& state : states_of_distress()) {
    states.push_back(std::move(state));
  }
  for (const bool reuse : {true, false}) {
    for (const Ending ending : {Ending::kAtOnce, Ending::kOnDemand, Ending::kShuffled}) {
      for (const State& state : states) {
        SCOPED_TRACE(state.name + ", reuse " + std::to_string(reuse));
        MemoryTiers memory(ending, {.deadline = std::chrono::milliseconds(1)});
        {
          BlockStore store(memory.tiers, {.name = "state",
                                          .ring_slots = 3,
                                          .slot_bytes = kBlock,
                                          .resident_bytes = 4 * kBlock,
                                          .disk_bytes = 20 * kBlock,
                                          .shadow_slots = true,
                                          .reuse_buffers = reuse});
          Client client{*memory.engine, store, {}};
          for (int i = 0; i < 6; ++i) {
            client.ids.push_back(store.add(kBlock, Tier::kDisk, "block " + std::to_string(i)));
            store.acquire(client.ids.back(), Access::kOverwrite).release();
          }
          store.commit();
          const Sooner sooner(*memory.engine);
          state.reach(client);
        }
        EXPECT_THAT(memory.engine->in_flight(), testing::IsEmpty());
        EXPECT_THAT(memory.engine->hazards(), testing::IsEmpty());
        EXPECT_TRUE(memory.engine->registered().empty());
        EXPECT_EQ(memory.tiers->host().used_bytes(), 0U);
        EXPECT_EQ(memory.tiers->disk().used_bytes(), 0U);
      }
    }
  }
}

}  // namespace
}  // namespace spillway::offload::block_store_shutdown_test
