// Long random sequences of everything that a store can do, beside a model that keeps each block in two vectors: what it
// contains, and what it contained at the last commit.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <spillway/offload/error.hpp>

#include "store_engines.hpp"
#include "support/property.hpp"
#include "workplace.hpp"

namespace spillway::offload::block_store_model_test {
namespace {

using test::OverEveryEngine;
using test::Random;
using Bytes = std::vector<std::byte>;

constexpr std::uint64_t kLargest = 5 * kPageBytes;

bool equal(std::span<const std::byte> a, std::span<const std::byte> b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size()) == 0;
}

/// What one block should be.
struct Modelled {
  BlockId id;
  Bytes contents;
  bool written = false;
  Bytes committed;
  bool committed_written = false;
  bool changed = false;
};

/// A store, its model, and a client that does one random thing after another to both.
class Client {
 public:
  Client(const std::shared_ptr<Tiers>& tiers, Random& random, const BlockStoreOptions& options,
         std::optional<unsigned> device_seed)
      : store_(tiers, options), random_(random), workplace_(kLargest, device_seed) {}

  /// One random thing. False where it came to nothing: it may not be done now, or would change nothing.
  bool step() {
    switch (random_.below(20)) {
      case 0:
        return add();
      case 1:
        return remove();
      case 2:
        return move();
      case 3:
        return flush();
      case 4:
        return begin();
      case 5:
        return cancel();
      case 6:
        return version();
      case 7:
      case 8:
      case 9:
        return write();
      case 10:
      case 11:
      case 12:
      case 13:
        return release();
      case 14:
      case 15:
        return acquire();
      default:
        return acquire_next();
    }
  }

  void check_all() {
    while (!held_.empty()) {
      release();
    }
    store_.begin({}, Access::kRead);
    order_.clear();
    for (const Modelled& block : blocks_) {
      const Lease lease = store_.acquire(block.id, Access::kRead);
      ASSERT_TRUE(equal(lease.bytes(), block.contents)) << "block " << block.id.value;
      ASSERT_EQ(lease.fresh(), !block.written);
    }
    EXPECT_THAT(workplace_.misuses(), testing::IsEmpty());
  }

 private:
  struct Held {
    BlockId id;
    Access access;
    bool streamed;
    bool of_pass;
    Lease lease;
    Bytes bytes;  ///< What the lease should hold.
  };

  Modelled& model(BlockId id) {
    return *std::find_if(blocks_.begin(), blocks_.end(), [&](const Modelled& block) { return block.id == id; });
  }
  [[nodiscard]] bool is_held(BlockId id) const {
    return std::any_of(held_.begin(), held_.end(), [&](const Held& held) { return held.id == id; });
  }
  [[nodiscard]] bool is_announced(BlockId id) const {
    return std::find(order_.begin(), order_.end(), id) != order_.end();
  }
  [[nodiscard]] std::size_t slots_held(bool of_pass_alone = false) const {
    std::vector<std::uint32_t> ids;
    for (const Held& held : held_) {
      if (held.streamed && (held.of_pass || !of_pass_alone)) {
        ids.push_back(held.id.value);
      }
    }
    std::sort(ids.begin(), ids.end());
    return static_cast<std::size_t>(std::unique(ids.begin(), ids.end()) - ids.begin());
  }
  Access any_access() {
    constexpr Access kAll[] = {Access::kRead, Access::kReadWrite, Access::kOverwrite};
    return random_.pick(std::span<const Access>(kAll));
  }
  Modelled* any_block() { return blocks_.empty() ? nullptr : &blocks_[random_.below(blocks_.size())]; }

  bool add() {
    const std::uint64_t bytes = random_.chance(1, 2) ? random_.between(1, 600) : random_.between(1, kLargest);
    try {
      const BlockId id = store_.add(bytes, random_.chance(1, 3) ? Tier::kHost : Tier::kDisk, "block");
      blocks_.push_back({id, Bytes(bytes), false, Bytes(bytes), false, false});
      return true;
    } catch (const BudgetExceeded&) {
      return false;
    }
  }

  bool remove() {
    const Modelled* block = any_block();
    if (block == nullptr || blocks_.size() <= 6 || is_held(block->id) || is_announced(block->id)) {
      return false;
    }
    store_.remove(block->id);
    blocks_.erase(blocks_.begin() + (block - blocks_.data()));
    return true;
  }

  bool flush() {
    store_.flush();
    return std::exchange(unflushed_, false);
  }

  bool move() {
    const Modelled* block = any_block();
    if (block == nullptr || is_held(block->id) || is_announced(block->id) ||
        (store_.options().shadow_slots && block->changed)) {
      return false;
    }
    const Tier before = store_.home(block->id);
    try {
      store_.set_home(block->id, random_.chance(1, 2) ? Tier::kHost : Tier::kDisk);
    } catch (const BudgetExceeded&) {
    }
    return store_.home(block->id) != before;
  }

  bool begin() {
    if (slots_held() > 0) {
      return false;
    }
    std::vector<BlockId> order;
    for (const Modelled& block : blocks_) {
      order.push_back(block.id);
    }
    if (random_.chance(1, 3)) {
      std::shuffle(order.begin(), order.end(), random_.engine());
    } else if (random_.chance(1, 2)) {
      std::reverse(order.begin(), order.end());
    }
    order.resize(order.size() - random_.below(order.size() / 2 + 1));
    pass_access_ = any_access();
    store_.begin(order, pass_access_);
    std::erase_if(order, [&](BlockId id) { return store_.home(id) == Tier::kHost; });
    order_ = std::move(order);
    return !order_.empty();
  }

  bool cancel() {
    if (slots_held() > 0) {
      return false;
    }
    store_.begin({}, Access::kRead);
    const bool running = !order_.empty();
    order_.clear();
    return running;
  }

  bool version() {
    if (!store_.options().shadow_slots || !random_.chance(1, 2)) {
      return false;
    }
    while (!held_.empty()) {
      release();
    }
    if (random_.chance(1, 2)) {
      store_.commit();
      for (Modelled& block : blocks_) {
        block.committed = block.contents;
        block.committed_written = block.written;
        block.changed = false;
      }
      return true;
    }
    store_.roll_back();
    order_.clear();
    for (Modelled& block : blocks_) {
      block.contents = block.committed;
      block.written = block.committed_written;
      block.changed = false;
    }
    return true;
  }

  bool acquire() {
    Modelled* block = any_block();
    if (block == nullptr || is_announced(block->id)) {
      return false;
    }
    Access access = any_access();
    for (const Held& held : held_) {
      if (held.id == block->id) {
        if (held.access != Access::kRead) {
          return false;
        }
        access = Access::kRead;  // Shared with the other one.
      }
    }
    if (store_.home(block->id) == Tier::kDisk && !is_held(block->id) && slots_held() >= store_.options().ring_slots) {
      return false;
    }
    hold(*block, access, false);
    return true;
  }

  bool acquire_next() {
    if (order_.empty() || slots_held() >= store_.options().ring_slots ||
        slots_held(true) + 1 >= store_.options().ring_slots) {
      return false;
    }
    const BlockId id = order_.front();
    order_.erase(order_.begin());
    hold(model(id), pass_access_, true);
    return true;
  }

  void hold(Modelled& block, Access access, bool of_pass) {
    for (const Held& held : held_) {
      of_pass = of_pass || (held.id == block.id && held.of_pass);  // It shares the buffer of the pass.
    }
    Held held{block.id, access, store_.home(block.id) == Tier::kDisk, of_pass, store_.acquire(block.id, access), {}};
    EXPECT_EQ(held.lease.fresh(), !block.written);
    if (access == Access::kOverwrite && block.written && held.streamed) {
      workplace_.change(held.lease.bytes(), random_.engine()());  // Whatever is in there: it is overwritten whole.
    } else {
      EXPECT_TRUE(equal(workplace_.contents(held.lease.bytes()), block.contents)) << "block " << block.id.value;
    }
    held.bytes.assign(held.lease.bytes().begin(), held.lease.bytes().end());
    block.changed = block.changed || (access != Access::kRead && !held.streamed);
    held_.push_back(std::move(held));
  }

  bool write() {
    bool any = false;
    for (Held& held : held_) {
      if (held.access != Access::kRead && random_.chance(1, 2)) {
        const std::size_t first = random_.below(held.bytes.size());
        workplace_.change(held.lease.bytes().subspan(first), random_.engine()());
        std::copy(held.lease.bytes().begin(), held.lease.bytes().end(), held.bytes.begin());
        any = true;
      }
    }
    return any;
  }

  bool release() {
    if (held_.empty()) {
      return false;
    }
    const auto chosen = held_.begin() + static_cast<std::ptrdiff_t>(random_.below(held_.size()));
    EXPECT_TRUE(equal(chosen->lease.bytes(), chosen->bytes)) << "somebody changed a block that was leased";
    Modelled& block = model(chosen->id);
    if (chosen->access == Access::kRead) {
      chosen->lease.release();
    } else if (random_.chance(1, 6)) {
      chosen->lease.abandon();
      if (!chosen->streamed && block.written) {
        block.contents = chosen->bytes;  // It was changed where it lives.
      }
    } else {
      chosen->lease.release();
      block.contents = chosen->bytes;
      block.written = true;
      block.changed = true;
      unflushed_ = unflushed_ || chosen->streamed;
    }
    held_.erase(chosen);
    return true;
  }

  BlockStore store_;
  Random& random_;
  test::Workplace workplace_;
  std::vector<Modelled> blocks_;
  bool unflushed_ = false;  // Something was written back since the last flush.
  std::vector<Held> held_;
  std::vector<BlockId> order_;  // Of the pass, those to come.
  Access pass_access_ = Access::kRead;
};

class BlockStoreModel : public OverEveryEngine {};
INSTANTIATE_TEST_SUITE_P(Engines, BlockStoreModel, test::kEveryEngine,
                         [](const auto& test) { return test::name_of(test.param); });

constexpr int kSeeds = 20;
constexpr int kOperations = 5000;  // 100,000 for each engine, of those that came to something.

void agree(bool on_device, const std::function<std::shared_ptr<Tiers>(std::uint64_t seed)>& make_tiers) {
  test::for_random_seeds(kSeeds, [&](Random& random) {
    const bool shadow_slots = random.chance(2, 3);
    const BlockStoreOptions options{.name = "random",
                                    .ring_slots = static_cast<unsigned>(random.between(2, 6)),
                                    .slot_bytes = kLargest,
                                    .resident_bytes = random.between(1, 20) * kLargest,
                                    .disk_bytes = random.between(4, 40) * kLargest,
                                    .shadow_slots = shadow_slots,
                                    .reuse_buffers = random.chance(3, 4),
                                    .background_sum_bytes = random.chance(1, 2) ? 1 : kLargest / 2};
    const auto tiers = make_tiers(random.between(1, 1000));
    {
      const auto pauses = static_cast<unsigned>(random.chance(1, 5) ? random.between(1, 1000) : 0);
      Client client(tiers, random, options, on_device ? std::optional(pauses) : std::nullopt);
      int done = 0;
      for (int tries = 0; done < kOperations && tries < 10 * kOperations && !testing::Test::HasFailure(); ++tries) {
        done += client.step() ? 1 : 0;
      }
      EXPECT_EQ(done, kOperations) << "too many came to nothing";
      client.check_all();
    }
    EXPECT_EQ(tiers->host().used_bytes(), 0U);
    EXPECT_EQ(tiers->disk().used_bytes(), 0U);
    if (const auto* engine = dynamic_cast<const test::MemoryEngine*>(&tiers->engine())) {
      EXPECT_THAT(engine->hazards(), testing::IsEmpty());
    }
  });
}

TEST_P(BlockStoreModel, AgreesWithTheModelUnderLongRandomUse) {
  agree(false, [this](std::uint64_t seed) { return make_tiers({}, seed); });
}

TEST(BlockStoreModelOnDevice, AgreesWithTheModelWhereBlocksAreCopiedToADeviceAndBack) {
  agree(true,
        [](std::uint64_t seed) { return test::MemoryTiers(test::MemoryEngine::Ending::kShuffled, {}, seed).tiers; });
}

}  // namespace
}  // namespace spillway::offload::block_store_model_test
