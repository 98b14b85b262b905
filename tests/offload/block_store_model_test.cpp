// Long random sequences of everything that a store can do, beside a model that keeps each block in two vectors: what it
// contains, and what it contained at the last commit.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include <spillway/offload/error.hpp>

#include "store_engines.hpp"
#include "support/property.hpp"

namespace spillway::offload::block_store_model_test {
namespace {

using test::OverEveryEngine;
using test::Random;
using Bytes = std::vector<std::byte>;

constexpr std::uint64_t kLargest = 5 * kPageBytes;

void fill(std::span<std::byte> bytes, Random& random) {
  std::uint64_t state = random.between(1, ~std::uint64_t{0});
  for (std::size_t i = 0; i < bytes.size(); i += 8) {
    state = state * 6364136223846793005U + 1442695040888963407U;
    std::memcpy(bytes.data() + i, &state, std::min<std::size_t>(8, bytes.size() - i));
  }
}

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
  Client(const std::shared_ptr<Tiers>& tiers, Random& random, const BlockStoreOptions& options)
      : store_(tiers, options), random_(random) {}

  void step() {
    switch (random_.below(20)) {
      case 0:
        return add();
      case 1:
        return remove();
      case 2:
        return move();
      case 3:
        return store_.flush();
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

  void add() {
    const std::uint64_t bytes = random_.chance(1, 2) ? random_.between(1, 600) : random_.between(1, kLargest);
    try {
      const BlockId id = store_.add(bytes, random_.chance(1, 3) ? Tier::kHost : Tier::kDisk, "block");
      blocks_.push_back({id, Bytes(bytes), false, Bytes(bytes), false, false});
    } catch (const BudgetExceeded&) {
    }
  }

  void remove() {
    const Modelled* block = any_block();
    if (block != nullptr && blocks_.size() > 6 && !is_held(block->id) && !is_announced(block->id)) {
      store_.remove(block->id);
      blocks_.erase(blocks_.begin() + (block - blocks_.data()));
    }
  }

  void move() {
    const Modelled* block = any_block();
    if (block == nullptr || is_held(block->id) || is_announced(block->id) ||
        (store_.options().shadow_slots && block->changed)) {
      return;
    }
    try {
      store_.set_home(block->id, random_.chance(1, 2) ? Tier::kHost : Tier::kDisk);
    } catch (const BudgetExceeded&) {
    }
  }

  void begin() {
    if (slots_held() > 0) {
      return;
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
  }

  void cancel() {
    if (slots_held() == 0) {
      store_.begin({}, Access::kRead);
      order_.clear();
    }
  }

  void version() {
    if (!store_.options().shadow_slots || !random_.chance(1, 2)) {
      return;
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
      return;
    }
    store_.roll_back();
    order_.clear();
    for (Modelled& block : blocks_) {
      block.contents = block.committed;
      block.written = block.committed_written;
      block.changed = false;
    }
  }

  void acquire() {
    Modelled* block = any_block();
    if (block == nullptr || is_announced(block->id)) {
      return;
    }
    Access access = any_access();
    for (const Held& held : held_) {
      if (held.id == block->id) {
        if (held.access != Access::kRead) {
          return;
        }
        access = Access::kRead;  // Shared with the other one.
      }
    }
    if (store_.home(block->id) == Tier::kDisk && !is_held(block->id) && slots_held() >= store_.options().ring_slots) {
      return;
    }
    hold(*block, access, false);
  }

  void acquire_next() {
    if (order_.empty() || slots_held() >= store_.options().ring_slots ||
        slots_held(true) + 1 >= store_.options().ring_slots) {
      return;
    }
    const BlockId id = order_.front();
    order_.erase(order_.begin());
    hold(model(id), pass_access_, true);
  }

  void hold(Modelled& block, Access access, bool of_pass) {
    for (const Held& held : held_) {
      of_pass = of_pass || (held.id == block.id && held.of_pass);  // It shares the buffer of the pass.
    }
    Held held{block.id, access, store_.home(block.id) == Tier::kDisk, of_pass, store_.acquire(block.id, access), {}};
    EXPECT_EQ(held.lease.fresh(), !block.written);
    if (access == Access::kOverwrite && block.written && held.streamed) {
      fill(held.lease.bytes(), random_);  // Whatever is in there: it is overwritten whole.
    } else {
      EXPECT_TRUE(equal(held.lease.bytes(), block.contents)) << "block " << block.id.value;
    }
    held.bytes.assign(held.lease.bytes().begin(), held.lease.bytes().end());
    block.changed = block.changed || (access != Access::kRead && !held.streamed);
    held_.push_back(std::move(held));
  }

  void write() {
    for (Held& held : held_) {
      if (held.access != Access::kRead && random_.chance(1, 2)) {
        const std::size_t first = random_.below(held.bytes.size());
        fill(held.lease.bytes().subspan(first), random_);
        std::copy(held.lease.bytes().begin(), held.lease.bytes().end(), held.bytes.begin());
      }
    }
  }

  void release() {
    if (held_.empty()) {
      return;
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
    }
    held_.erase(chosen);
  }

  BlockStore store_;
  Random& random_;
  std::vector<Modelled> blocks_;
  std::vector<Held> held_;
  std::vector<BlockId> order_;  // Of the pass, those to come.
  Access pass_access_ = Access::kRead;
};

class BlockStoreModel : public OverEveryEngine {};
INSTANTIATE_TEST_SUITE_P(Engines, BlockStoreModel, test::kEveryEngine,
                         [](const auto& test) { return test::name_of(test.param); });

constexpr int kSeeds = 20;
constexpr int kOperations = 5000;  // 100,000 for each engine.

TEST_P(BlockStoreModel, AgreesWithTheModelUnderLongRandomUse) {
  test::for_random_seeds(kSeeds, [this](Random& random) {
    const bool shadow_slots = random.chance(2, 3);
    const BlockStoreOptions options{.name = "random",
                                    .ring_slots = static_cast<unsigned>(random.between(2, 6)),
                                    .slot_bytes = kLargest,
                                    .resident_bytes = random.between(1, 20) * kLargest,
                                    .disk_bytes = random.between(4, 40) * kLargest,
                                    .shadow_slots = shadow_slots,
                                    .reuse_buffers = random.chance(3, 4)};
    const auto tiers = make_tiers({}, random.between(1, 1000));
    {
      Client client(tiers, random, options);
      for (int i = 0; i < kOperations && !testing::Test::HasFailure(); ++i) {
        client.step();
      }
      client.check_all();
    }
    EXPECT_EQ(tiers->host().used_bytes(), 0U);
    EXPECT_EQ(tiers->disk().used_bytes(), 0U);
    if (const auto* engine = dynamic_cast<const test::MemoryEngine*>(&tiers->engine())) {
      EXPECT_THAT(engine->hazards(), testing::IsEmpty());
    }
  });
}

}  // namespace
}  // namespace spillway::offload::block_store_model_test
