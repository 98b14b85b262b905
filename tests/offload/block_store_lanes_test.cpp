// Who goes first where stores compete for one disk: shown by an engine of one thread that is held at its first transfer
// while others queue up, and then lets them go.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <spillway/offload/error.hpp>
#include <spillway/offload/thread_engine.hpp>

#include "store_fixture.hpp"

namespace spillway::offload::block_store_lanes_test {
namespace {

using test::StreamedStore;
using testing::ElementsAreArray;

constexpr std::uint64_t kBlock = kPageBytes;

/// Tiers whose disk moves nothing, notes the order of what it is asked for, and can be held.
class HeldDisk {
 public:
  HeldDisk() {
    auto transfer = [this](IoRequest::Operation operation, int /*fd*/, std::span<std::byte> memory,
                           std::uint64_t offset) {
      std::shared_future<void> gate;
      {
        const std::lock_guard lock(mutex_);
        served_.push_back((operation == IoRequest::Operation::kRead ? "read " : "write ") +
                          std::to_string(offset / kBlock));
        gate = gate_;
      }
      if (gate.valid()) {
        gate.wait();
      }
      return static_cast<std::int64_t>(memory.size());
    };
    tiers = std::make_shared<Tiers>(TiersOptions{.nvme_path = testing::TempDir(),
                                                 .deadline = std::chrono::milliseconds(300),
                                                 .log = [](const std::string&) {}},
                                    std::make_unique<ThreadEngine>(EngineOptions{.threads = 1}, transfer));
  }
  ~HeldDisk() { let_go(); }

  /// Comes back when the engine's thread is in a transfer that does not end before let_go().
  void hold() {
    settle();
    {
      const std::lock_guard lock(mutex_);
      gate_ = open_.get_future().share();
    }
    const BlockId id = holder_->ids[0];
    holder_->store.acquire(id, Access::kOverwrite).release();
    while (served().empty()) {
      std::this_thread::yield();
    }
  }
  void let_go() {
    if (!std::exchange(open_already_, true)) {
      open_.set_value();
    }
  }
  /// What was served after the transfer that was held, once all has ended.
  std::vector<std::string> order() {
    let_go();
    tiers->engine().drain(std::chrono::minutes(1));
    std::vector<std::string> all = served();
    all.erase(all.begin());
    return all;
  }

  void add_holder() { holder_ = std::make_unique<StreamedStore>(tiers, 1, kBlock, 2, false); }

 private:
  std::vector<std::string> served() {
    const std::lock_guard lock(mutex_);
    return served_;
  }
  void settle() {
    tiers->engine().drain(std::chrono::minutes(1));
    const std::lock_guard lock(mutex_);
    served_.clear();
  }

  std::mutex mutex_;
  std::vector<std::string> served_;
  std::promise<void> open_;
  bool open_already_ = false;
  std::shared_future<void> gate_;

 public:
  std::shared_ptr<Tiers> tiers;  // After what its engine's thread uses.

 private:
  std::unique_ptr<StreamedStore> holder_;
};

BlockStoreOptions options(const std::string& name, Lane lane, unsigned ring_slots) {
  return {.name = name,
          .lane = lane,
          .ring_slots = ring_slots,
          .slot_bytes = kBlock,
          .resident_bytes = 4 * kBlock,
          .disk_bytes = 16 * kBlock,
          .reuse_buffers = false,
          .verify_checksums = false};
}

std::vector<BlockId> add_written(BlockStore& store, int count, Tier home) {
  std::vector<BlockId> ids;
  for (int i = 0; i < count; ++i) {
    ids.push_back(store.add(kBlock, home, "block " + std::to_string(i)));
    store.acquire(ids.back(), Access::kOverwrite).release();
  }
  return ids;
}

std::vector<std::string> names(const std::string& operation, std::initializer_list<int> places) {
  std::vector<std::string> all;
  for (const int place : places) {
    all.push_back(operation + std::to_string(place));
  }
  return all;
}

std::vector<std::string> operator+(std::vector<std::string> a, const std::vector<std::string>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

// Places on the disk: 0 to 15 the state's, 16 to 31 the bank's.
struct TwoClients {
  explicit TwoClients(Lane state_lane = Lane::kState) : state(disk.tiers, options("state", state_lane, 4)) {}
  HeldDisk disk;
  BlockStore state;
  BlockStore bank{disk.tiers, options("bank", Lane::kBank, 4)};
};

// What is read ahead after blocks were sent to the disk: in which order both are served.
std::vector<std::string> order_of_reads_behind_writes(Lane lane) {
  TwoClients two(lane);
  const auto cold = add_written(two.state, 4, Tier::kDisk);
  const auto leaving = add_written(two.state, 3, Tier::kHost);
  two.disk.add_holder();
  two.disk.hold();
  for (const BlockId id : leaving) {
    two.state.set_home(id, Tier::kDisk);  // Written back first,
  }
  two.state.begin(cold, Access::kRead);  // and read ahead afterwards.
  return two.disk.order();
}

TEST(BlockStoreLanes, NeverLetsAPrefetchWaitBehindAWriteBack) {
  const auto reads = names("read ", {0, 1, 2, 3});
  const auto writes = names("write ", {4, 5, 6});
  EXPECT_THAT(order_of_reads_behind_writes(Lane::kState), ElementsAreArray(reads + writes));
  EXPECT_THAT(order_of_reads_behind_writes(Lane::kWriteBack), ElementsAreArray(writes + reads))
      << "the control: in one lane they go as they came";
}

TEST(BlockStoreLanes, ServesTheBankBeforeTheStateAndBothBeforeAnybodysWriteBacks) {
  TwoClients two;
  const auto state = add_written(two.state, 3, Tier::kDisk);
  const auto leaving = add_written(two.state, 2, Tier::kHost);
  const auto bank = add_written(two.bank, 3, Tier::kDisk);
  two.disk.add_holder();
  two.disk.hold();
  for (const BlockId id : leaving) {
    two.state.set_home(id, Tier::kDisk);
  }
  two.state.begin(state, Access::kRead);
  two.bank.begin(bank, Access::kRead);
  EXPECT_THAT(two.disk.order(),
              ElementsAreArray(names("read ", {16, 17, 18}) + names("read ", {0, 1, 2}) + names("write ", {3, 4})));
}

TEST(BlockStoreLanes, LetsABlockThatSomebodyWaitsForOvertakeAll) {
  for (const bool somebody_waits : {true, false}) {
    TwoClients two;
    const auto state = add_written(two.state, 3, Tier::kDisk);
    const auto bank = add_written(two.bank, 3, Tier::kDisk);
    two.disk.add_holder();
    two.disk.hold();
    two.bank.begin(bank, Access::kRead);
    two.state.begin(std::vector{state[2], state[0], state[1]}, Access::kRead);
    if (somebody_waits) {
      EXPECT_THROW(static_cast<void>(two.state.acquire(state[2], Access::kRead)), TimedOut);
    }
    const auto bank_reads = names("read ", {16, 17, 18});
    const auto expected = somebody_waits ? names("read ", {2}) + bank_reads + names("read ", {0, 1})
                                         : bank_reads + names("read ", {2, 0, 1});
    EXPECT_THAT(two.disk.order(), ElementsAreArray(expected));
  }
}

TEST(BlockStoreLanes, RaisesTheWriteBackThatAWaitedForBlockComesBehind) {
  TwoClients two;
  BlockStore store(two.disk.tiers, options("narrow", Lane::kState, 2));  // Places 32 and on.
  const auto ids = add_written(store, 3, Tier::kDisk);
  const auto bank = add_written(two.bank, 3, Tier::kDisk);
  store.flush();
  store.begin(ids, Access::kReadWrite);
  two.disk.tiers->engine().drain(std::chrono::minutes(1));
  two.disk.add_holder();
  two.disk.hold();
  store.acquire(ids[0], Access::kReadWrite).release();  // Its write-back, and behind it the read of the third.
  two.bank.begin(bank, Access::kRead);
  store.acquire(ids[1], Access::kReadWrite).release();
  EXPECT_THROW(static_cast<void>(store.acquire(ids[2], Access::kReadWrite)), TimedOut);
  EXPECT_THAT(two.disk.order(), ElementsAreArray(names("write ", {32}) + names("read ", {34}) +
                                                 names("read ", {16, 17, 18}) + names("write ", {33})));
}

TEST(BlockStoreLanes, GivesEachClientARingOfItsOwn) {
  TwoClients two;
  const auto state = add_written(two.state, 8, Tier::kDisk);
  const auto bank = add_written(two.bank, 8, Tier::kDisk);
  std::vector<Lease> all;
  for (int i = 0; i < 4; ++i) {
    all.push_back(two.state.acquire(state[static_cast<std::size_t>(i)], Access::kRead));
  }
  EXPECT_THROW(static_cast<void>(two.state.acquire(state[4], Access::kRead)), TimedOut) << "it has no buffer left";
  two.bank.begin(bank, Access::kReadWrite);
  for (const BlockId id : bank) {
    two.bank.acquire(id, Access::kReadWrite).release();
  }
}

}  // namespace
}  // namespace spillway::offload::block_store_lanes_test
