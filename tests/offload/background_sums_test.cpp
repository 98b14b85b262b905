#include <spillway/offload/background_sums.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <deque>
#include <functional>
#include <memory>
#include <sstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <spillway/offload/checksum.hpp>
#include <spillway/offload/request_state.hpp>

#include "store_fixture.hpp"

namespace spillway::offload::background_sums_test {
namespace {

using testing::HasSubstr;
using Ending = test::MemoryEngine::Ending;

/// A stream that runs its tasks when the test says so.
class HeldStream final : public CopyStream {
 public:
  explicit HeldStream(std::deque<std::function<void()>>& tasks) : tasks_(tasks) {}
  void copy(std::span<std::byte> /*destination*/, std::span<const std::byte> /*source*/) override { FAIL(); }
  void run(std::function<void()> task) override { tasks_.push_back(std::move(task)); }
  [[nodiscard]] std::shared_ptr<Event> record() override { return nullptr; }
  void wait(const std::shared_ptr<Event>& /*event*/) override { FAIL(); }

 private:
  std::deque<std::function<void()>>& tasks_;
};

struct Held {
  void run_all() {
    while (!tasks.empty()) {
      tasks.front()();
      tasks.pop_front();
    }
  }
  [[nodiscard]] std::shared_ptr<BlockSum> sum() const { return std::make_shared<BlockSum>(contents, 7); }

  std::array<std::byte, 100> contents{std::byte{1}, std::byte{2}};
  std::deque<std::function<void()>> tasks;
  BackgroundSums sums{std::make_unique<HeldStream>(tasks)};
};

Ticket transfer() {
  return Ticket(std::make_shared<RequestState>(
      IoFailure{.operation = "read", .path = "x", .offset = 0, .bytes = 1, .error_number = 0, .advice = {}}));
}

TEST(BlockSum, IsMadeOnceByWhoeverComesFirst) {
  Held held;
  const auto sum = held.sum();
  EXPECT_FALSE(sum->ended().done());
  held.sums.add(sum);
  sum->make();  // Before the thread.
  ASSERT_TRUE(sum->ended().done());
  const std::uint64_t expected = xxh3_64(held.contents, 7);
  EXPECT_EQ(sum->value(), expected);
  held.contents[50] = std::byte{9};
  held.run_all();
  EXPECT_EQ(sum->value(), expected) << "the contents were the caller's again";
}

TEST(BackgroundSums, AreMadeByTheThreadAndNotByTheirCallers) {
  Held held;
  const auto sum = held.sum();
  held.sums.add(sum);
  EXPECT_FALSE(sum->ended().done());
  held.run_all();
  ASSERT_TRUE(sum->ended().done());
  EXPECT_EQ(sum->value(), xxh3_64(held.contents, 7));
}

TEST(BackgroundSums, AreMadeByTheirCallersWhereTheThreadIsBehind) {
  Held held;
  std::vector<std::shared_ptr<BlockSum>> all;
  for (unsigned i = 0; i <= BackgroundSums::kWaitingMax; ++i) {
    all.push_back(held.sum());
    held.sums.add(all.back());
    EXPECT_EQ(all.back()->ended().done(), i == BackgroundSums::kWaitingMax) << i;
  }
  held.run_all();
  all.push_back(held.sum());
  held.sums.add(all.back());
  EXPECT_FALSE(all.back()->ended().done()) << "it has caught up";
  held.run_all();
}

TEST(BackgroundSums, BeginWhenTheTransferHasBroughtTheContents) {
  Held held;
  const auto sum = held.sum();
  const Ticket read = transfer();
  held.sums.add_after(read, sum);
  EXPECT_TRUE(held.tasks.empty());
  held.contents[1] = std::byte{77};
  read.state()->finish(nullptr);
  EXPECT_FALSE(sum->ended().done()) << "made on the thread that ended the transfer";
  held.run_all();
  EXPECT_EQ(sum->value(), xxh3_64(held.contents, 7));
}

TEST(BackgroundSums, AreNeverMadeOfATransferThatFailed) {
  Held held;
  const auto sum = held.sum();
  const Ticket read = transfer();
  held.sums.add_after(read, sum);
  read.state()->finish(std::make_shared<const IoFailure>());
  EXPECT_TRUE(held.tasks.empty());
  EXPECT_TRUE(sum->ended().done()) << "what changes the memory need not wait";
}

std::size_t sums_on_the_trace(std::uint64_t background_sum_bytes) {
  constexpr std::size_t kBlocks = 12;
  const auto trace = std::make_shared<Trace>();
  {
    test::MemoryTiers memory(Ending::kAtOnce, {.trace = trace});
    test::StreamedStore streamed(memory.tiers, kBlocks, kPageBytes, 4, true, background_sum_bytes);
    streamed.fill(1);
    streamed.store.begin(streamed.ids, Access::kRead);
    for (std::size_t i = 0; i < kBlocks; ++i) {
      EXPECT_TRUE(test::all_equal(streamed.store.acquire(streamed.ids[i], Access::kRead).bytes(),
                                  static_cast<std::uint8_t>(1 + i)));
    }
  }
  std::ostringstream text;
  trace->write_json(text);
  std::size_t found = 0;
  for (std::size_t at = 0; (at = text.str().find("\"name\": \"checksum\"", at)) != std::string::npos; ++at) {
    ++found;
  }
  return found;
}

TEST(BackgroundSumsOfAStore, AreThoseOfItsLargeBlocks) {
  EXPECT_GE(sums_on_the_trace(kPageBytes), 12U) << "all that is read; what is written unless the thread is behind";
  EXPECT_EQ(sums_on_the_trace(kPageBytes + 1), 0U);
}

// A buffer that is left by a write is used again as soon as its write has ended, which takes no time here: without
// the order between sum and write the next block would be summed in the place of this one.
TEST(BackgroundSumsOfAStore, AreOfWhatWasThereWhenTheLeaseWasDropped) {
  constexpr std::uint64_t kBlock = std::uint64_t{4} << 20;
  test::MemoryTiers memory(Ending::kAtOnce);
  test::StreamedStore streamed(memory.tiers, 4, kBlock, 2);
  for (const std::uint8_t first : std::to_array<std::uint8_t>({1, 11, 21})) {
    streamed.fill(first);
    streamed.store.begin(streamed.ids, Access::kRead);
    for (std::size_t i = 0; i < streamed.ids.size(); ++i) {
      const Lease lease = streamed.store.acquire(streamed.ids[i], Access::kRead);
      ASSERT_TRUE(test::all_equal(lease.bytes(), static_cast<std::uint8_t>(first + i)));
    }
  }
}

// Its buffer gets the next block while the sum may still be made.
TEST(BackgroundSumsOfAStore, AreNotOfWhatABufferGetsWhenAPassIsGivenUp) {
  constexpr std::uint64_t kBlock = std::uint64_t{4} << 20;
  test::MemoryTiers memory(Ending::kAtOnce);
  test::StreamedStore streamed(memory.tiers, 4, kBlock, 2);
  streamed.fill(1);
  for (int round = 0; round < 5; ++round) {
    streamed.store.begin(streamed.ids, Access::kRead);
    streamed.store.begin({}, Access::kRead);
    for (const std::size_t i : {3U, 2U}) {
      EXPECT_TRUE(test::all_equal(streamed.store.acquire(streamed.ids[i], Access::kRead).bytes(),
                                  static_cast<std::uint8_t>(1 + i)));
    }
    streamed.store.begin(streamed.ids, Access::kRead);
    Lease lease = streamed.store.acquire(streamed.ids[0], Access::kRead);
    lease.release();
    streamed.store.begin(streamed.ids, Access::kOverwrite);
    lease = streamed.store.acquire(streamed.ids[0], Access::kOverwrite);
    std::fill(lease.bytes().begin(), lease.bytes().end(), std::byte{1});
    lease.release();
    streamed.store.begin({}, Access::kRead);
  }
  EXPECT_THAT(memory.engine->hazards(), testing::IsEmpty());
}

}  // namespace
}  // namespace spillway::offload::background_sums_test
