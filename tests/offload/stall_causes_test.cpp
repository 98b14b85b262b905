// What callers of a store waited for, by cause.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <functional>
#include <memory>
#include <numeric>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include <spillway/offload/store_transfers.hpp>

#include "store_fixture.hpp"

namespace spillway::offload::stall_causes_test {
namespace {

using test::MemoryTiers;
using test::StreamedStore;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;
using Ending = test::MemoryEngine::Ending;

constexpr std::uint64_t kBlock = kPageBytes;

/// How many waits of each cause came since it was made.
class Waits {
 public:
  explicit Waits(const Stats& stats) : stats_(stats), before_(now()) {}
  [[nodiscard]] std::array<std::uint64_t, kStallCauses> since() const {
    std::array<std::uint64_t, kStallCauses> counts = now();
    for (std::size_t i = 0; i < counts.size(); ++i) {
      counts[i] -= before_[i];
    }
    return counts;
  }

 private:
  [[nodiscard]] std::array<std::uint64_t, kStallCauses> now() const {
    std::array<std::uint64_t, kStallCauses> counts{};
    for (std::size_t i = 0; i < counts.size(); ++i) {
      counts[i] = stats_.stalls[i].count;
    }
    return counts;
  }
  const Stats& stats_;
  const std::array<std::uint64_t, kStallCauses> before_;
};

// In the order of StallCause: read, write-back, checksum, block, buffer.
const auto kNone = ElementsAre(0, 0, 0, 0, 0);
const auto kOneRead = ElementsAre(1, 0, 0, 0, 0);
const auto kOneWriteBack = ElementsAre(0, 1, 0, 0, 0);
const auto kOneBlock = ElementsAre(0, 0, 0, 1, 0);
const auto kOneBuffer = ElementsAre(0, 0, 0, 0, 1);

void wait_until(const std::function<bool()>& true_now) {
  while (!true_now()) {
    std::this_thread::yield();
  }
}

/// Three blocks on disk behind two buffers, on an engine that ends nothing before somebody waits for it.
struct OnDemand {
  explicit OnDemand(TiersOptions options = {}) : memory(Ending::kOnDemand, std::move(options)) {
    streamed.fill(1);
    streamed.store.flush();
  }
  [[nodiscard]] const Stats& stats() const { return memory.tiers->stats(); }
  void use(std::size_t block, Access access) { streamed.store.acquire(streamed.ids[block], access).release(); }

  MemoryTiers memory;
  StreamedStore streamed{memory.tiers, 3, kBlock, 2, true, 2 * kBlock};
};

TEST(StallCauses, AreNoneWhereWhatWasReadAheadIsThere) {
  OnDemand made;
  made.streamed.store.begin(made.streamed.ids, Access::kRead);
  made.memory.engine->end_all();
  const Waits waits(made.stats());
  made.use(0, Access::kRead);
  EXPECT_THAT(waits.since(), kNone);
}

TEST(StallCauses, AreAReadForABlockThatIsNotThere) {
  OnDemand made;
  made.streamed.store.begin(made.streamed.ids, Access::kRead);
  const Waits waits(made.stats());
  made.use(0, Access::kRead);
  EXPECT_THAT(waits.since(), kOneRead);
}

TEST(StallCauses, AreAWriteBackForAFlush) {
  OnDemand made;
  made.use(0, Access::kOverwrite);
  const Waits waits(made.stats());
  made.streamed.store.flush();
  EXPECT_THAT(waits.since(), kOneWriteBack);
  made.streamed.store.flush();
  EXPECT_THAT(waits.since(), kOneWriteBack) << "nothing is left to wait for";
}

TEST(StallCauses, AreAWriteBackForABufferThatIsToBeOverwritten) {
  OnDemand made;
  made.use(0, Access::kOverwrite);
  made.use(1, Access::kOverwrite);
  const Waits waits(made.stats());
  made.use(2, Access::kOverwrite);
  EXPECT_THAT(waits.since(), kOneWriteBack);
}

TEST(StallCauses, AreBothForAReadThatComesBehindTheWriteBackOfItsBuffer) {
  for (const Access access : {Access::kRead, Access::kReadWrite}) {
    OnDemand made;
    made.streamed.store.begin(made.streamed.ids, access);
    made.use(0, access);
    made.use(1, access);
    const Waits waits(made.stats());
    made.use(2, access);
    EXPECT_THAT(waits.since(), ElementsAre(1, access == Access::kRead ? 0 : 1, 0, 0, 0));
  }
}

TEST(StallCauses, AreTheBlockWhereSomebodyHasItAndABufferWhereOthersHaveThemAll) {
  OnDemand made;
  for (const bool same_block : {true, false}) {
    std::vector<Lease> leases;
    leases.push_back(made.streamed.store.acquire(made.streamed.ids[0], Access::kReadWrite));
    leases.push_back(made.streamed.store.acquire(made.streamed.ids[1], Access::kReadWrite));
    made.memory.engine->set_ending(Ending::kAtOnce);  // What comes now is waited for no more.
    const Waits waits(made.stats());
    std::jthread other([&] { made.use(same_block ? 0 : 2, Access::kOverwrite); });
    wait_until([&] { return made.streamed.store.waiting() == 1; });
    leases.clear();
    other.join();
    EXPECT_THAT(waits.since(), same_block ? kOneBlock : kOneBuffer);
    made.memory.engine->set_ending(Ending::kOnDemand);
  }
}

TEST(StallCauses, AreAChecksumThatAnotherThreadIsMaking) {
  MemoryTiers memory(Ending::kAtOnce);
  const StoreTransfers transfers(*memory.tiers, Lane::kState);
  const std::vector<std::byte> contents(std::size_t{16} << 20);
  const Waits waits(memory.tiers->stats());
  BlockSum own(contents, 1);
  static_cast<void>(transfers.await(own));
  EXPECT_THAT(waits.since(), kNone) << "it was made here";
  for (int tries = 0; tries < 1000 && waits.since()[2] == 0; ++tries) {  // It may be done before anybody waits.
    BlockSum sum(contents, 1);
    std::atomic<bool> begins = false;
    std::jthread other([&] {
      begins = true;
      sum.make();
    });
    wait_until([&] { return begins.load(); });
    std::this_thread::yield();
    EXPECT_EQ(transfers.await(sum), own.value());
  }
  EXPECT_THAT(waits.since(), ElementsAre(0, 0, 1, 0, 0));
}

TEST(StallCauses, AddUpToTheWholeAndStandOnTheTrace) {
  const auto trace = std::make_shared<Trace>();
  OnDemand made({.trace = trace});
  made.streamed.store.begin(made.streamed.ids, Access::kReadWrite);
  for (std::size_t i = 0; i < 3; ++i) {
    made.use(i, Access::kReadWrite);
  }
  made.streamed.store.flush();
  const std::uint64_t sum = std::accumulate(made.stats().stalls.begin(), made.stats().stalls.end(), std::uint64_t{0},
                                            [](std::uint64_t so_far, const auto& cause) { return so_far + cause.ns; });
  EXPECT_GT(sum, 0U);
  EXPECT_EQ(made.stats().stall_ns, sum);
  std::ostringstream text;
  trace->write_json(text);
  EXPECT_THAT(text.str(), HasSubstr("\"name\": \"waits for a read\""));
  EXPECT_THAT(text.str(), HasSubstr("\"name\": \"waits for a write-back\""));
  EXPECT_THAT(text.str(), Not(HasSubstr("\"name\": \"waits for a buffer\"")));
}

}  // namespace
}  // namespace spillway::offload::stall_causes_test
