// The device that is none: what it does with bytes, and what it notices of those who do not wait.
#include <spillway/offload/simulated_device.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <future>
#include <optional>
#include <string>
#include <vector>

#include <spillway/offload/error.hpp>

#include "store_fixture.hpp"

namespace spillway::offload::simulated_device_test {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;

constexpr std::size_t kBytes = 4096;

void flip(std::span<std::byte> bytes) {
  for (std::byte& value : bytes) {
    value ^= std::byte{0x55};
  }
}

/// The waits of the pipeline below; a test leaves one out.
enum class Link { kNone, kComputeAfterIn, kOutAfterCompute, kHostAfterOut };

struct Outcome {
  bool good = true;
  std::vector<std::string> misuses;
};

// Three streams pass a buffer on: copied in, changed, copied out. The host fills the input and looks at the output.
Outcome run_pipeline(unsigned seed, Link missing) {
  std::vector<std::byte> input(kBytes);
  std::vector<std::byte> output(kBytes);
  SimulatedDevice device(kBytes, seed);
  const std::span<std::byte> staged = device.allocate(kBytes);
  const auto in = device.make_stream();
  const auto compute = device.make_stream();
  const auto out = device.make_stream();
  Outcome outcome;
  const auto link = [&](Link which, CopyStream& later, CopyStream& earlier) {
    if (which != missing) {
      later.wait(earlier.record());
    }
  };
  for (int round = 0; round < 8; ++round) {
    device.host_writes(input);
    std::fill(input.begin(), input.end(), std::byte(round));
    in->copy(staged, input);
    link(Link::kComputeAfterIn, *compute, *in);
    device.launch(*compute, {staged}, {staged}, [view = device.kernel_view(staged)] { flip(view); });
    link(Link::kOutAfterCompute, *out, *compute);
    out->copy(output, staged);
    if (missing != Link::kHostAfterOut) {
      out->record()->synchronize();
    }
    device.host_reads(output);
    outcome.good = outcome.good && output.front() == (std::byte(round) ^ std::byte{0x55});
  }
  for (CopyStream* stream : {in.get(), compute.get(), out.get()}) {
    stream->record()->synchronize();
  }
  outcome.misuses = device.misuses();
  return outcome;
}

TEST(SimulatedDevice, FindsNothingWrongWithAPipelineThatWaitsForAllItsEvents) {
  for (unsigned seed = 0; seed < 10; ++seed) {
    const Outcome outcome = run_pipeline(seed, Link::kNone);
    EXPECT_TRUE(outcome.good) << "seed " << seed;
    EXPECT_THAT(outcome.misuses, IsEmpty()) << "seed " << seed;
  }
}

// By what was not waited for: it takes no luck with the pauses.
#if !defined(__SANITIZE_THREAD__)  // They are races on purpose.
TEST(SimulatedDevice, NoticesEveryWaitThatIsMissing) {
  for (const unsigned seed : {0U, 3U}) {
    for (const Link missing : {Link::kComputeAfterIn, Link::kOutAfterCompute, Link::kHostAfterOut}) {
      EXPECT_THAT(run_pipeline(seed, missing).misuses, testing::Contains(HasSubstr("without an event between them")))
          << "link " << static_cast<int>(missing) << ", seed " << seed;
    }
  }
}

TEST(SimulatedDevice, NoticesAHostThatChangesBytesBeforeTheirCopyIsDoneThoughItDoesNotSaySo) {
  std::vector<std::byte> input(kBytes);
  std::vector<std::byte> output(kBytes);
  SimulatedDevice other(1);
  SimulatedDevice device(kBytes);
  const auto gate = other.make_stream();
  const auto stream = device.make_stream();
  for (std::vector<std::byte>* touched : {&input, &output}) {
    std::promise<void> open;
    gate->run([future = open.get_future().share()] { future.wait(); });
    stream->wait(gate->record());
    stream->copy(output, input);
    const auto event = stream->record();
    const std::size_t before = device.misuses().size();
    (*touched)[100] ^= std::byte{1};
    open.set_value();
    event->synchronize();
    ASSERT_EQ(device.misuses().size(), before + 1);
    EXPECT_THAT(device.misuses().back(), HasSubstr(touched == &input ? "reads were changed" : "writes were changed"));
  }
}
#endif

TEST(SimulatedDevice, NamesBothSidesOfAMisuse) {
  std::vector<std::byte> host(2 * kBytes);
  SimulatedDevice device(2 * kBytes);
  const auto first = device.make_stream();
  const auto second = device.make_stream();
  const auto memory = device.allocate(kBytes);
  const auto host_span = std::span(host);
  first->copy(memory, host_span.first(kBytes));
  first->record()->synchronize();
  EXPECT_THAT(device.misuses(), IsEmpty());
  first->copy(memory, host_span.first(kBytes));
  second->wait(first->record());
  second->copy(host_span.subspan(kBytes), memory);
  EXPECT_THAT(device.misuses(), IsEmpty());
  device.host_reads(host_span.first(kBytes));  // Two who read do not harm each other.
  EXPECT_THAT(device.misuses(), IsEmpty());
  device.host_writes(host_span.first(1));
  EXPECT_THAT(device.misuses(),
              testing::ElementsAre("the host writes bytes that a copy (task 2 of stream 0) reads, without an event "
                                   "between them"));
  second->record()->synchronize();  // Which comes after the copy of the first stream as well.
  device.host_writes(host);
  EXPECT_EQ(device.misuses().size(), 1U);
}

TEST(SimulatedDevice, HasAsMuchMemoryAsItWasGiven) {
  SimulatedDevice device(3 * kBytes);
  const auto first = device.allocate(1);
  const auto second = device.allocate(2 * kBytes);
  EXPECT_EQ(first.size(), 1U);
  EXPECT_GE(second.data() - first.data(), static_cast<std::ptrdiff_t>(kBytes));
  EXPECT_THROW(static_cast<void>(device.allocate(1)), Error);
  EXPECT_THROW(device.launch(*make_host_stream(), {}, {}, [] {}), Error);
  EXPECT_THROW(device.launch(*SimulatedDevice(1).make_stream(), {}, {}, [] {}), Error);
}

TEST(SimulatedDeviceDeathTest, EndsAHostThatTouchesItsMemory) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  SimulatedDevice device(kBytes);
  const auto memory = device.allocate(kBytes);
  EXPECT_DEATH(memory[7] = std::byte{1}, "");
}

// Blocks go through the device and back into their buffers; a buffer is given back once the copy into it is done.
std::vector<std::string> stream_through(SimulatedDevice& device, bool waits_before_release) {
  test::MemoryTiers memory(test::MemoryEngine::Ending::kShuffled);
  test::StreamedStore streamed(memory.tiers, 8, kBytes, 3);
  streamed.fill(1);
  const auto in = device.make_stream();
  const auto out = device.make_stream();
  const std::array staged{device.allocate(kBytes), device.allocate(kBytes)};
  struct Out {
    Lease lease;
    std::shared_ptr<Event> copied;
  };
  std::optional<Out> last;
  const auto release_last = [&] {
    if (last && waits_before_release) {
      last->copied->synchronize();
    }
    if (last) {
      device.host_reads(last->lease.bytes());  // As the store does: it sums them, and writes them back.
    }
    last.reset();
  };
  for (int pass = 0; pass < 3; ++pass) {
    streamed.store.begin(streamed.ids, Access::kReadWrite);
    for (std::size_t i = 0; i < streamed.ids.size(); ++i) {
      Lease lease = streamed.store.acquire(streamed.ids[i], Access::kReadWrite);
      device.host_writes(lease.bytes());  // The store filled it.
      const std::span<std::byte> block = staged[i % 2];
      in->wait(out->record());
      in->copy(block, lease.bytes());
      device.launch(*in, {block}, {block}, [view = device.kernel_view(block)] { flip(view); });
      out->wait(in->record());
      out->copy(lease.bytes(), block);
      release_last();
      last = Out{std::move(lease), out->record()};
    }
    release_last();
  }
  out->record()->synchronize();
  for (std::size_t i = 0; i < streamed.ids.size(); ++i) {
    const std::uint8_t expected = static_cast<std::uint8_t>(1 + i) ^ 0x55U;  // Flipped three times.
    const bool good = test::all_equal(streamed.store.acquire(streamed.ids[i], Access::kRead).bytes(), expected);
    EXPECT_TRUE(good || !waits_before_release) << "block " << i;
  }
  EXPECT_THAT(memory.engine->hazards(), IsEmpty());
  return device.misuses();
}

TEST(SimulatedDevice, HasTheBlocksOfAStorePassThroughInOrder) {
  for (unsigned seed = 0; seed < 5; ++seed) {
    SimulatedDevice device(2 * kBytes, seed);
    EXPECT_THAT(stream_through(device, true), IsEmpty()) << "seed " << seed;
  }
}

#if !defined(__SANITIZE_THREAD__)  // It is a race on purpose.
TEST(SimulatedDevice, NoticesABlockThatGoesBackToTheStoreBeforeItsCopyIsDone) {
  SimulatedDevice device(2 * kBytes, 1);
  try {
    EXPECT_THAT(stream_through(device, false), testing::Contains(HasSubstr("the host reads bytes that a copy")));
  } catch (const Corruption&) {
    EXPECT_THAT(device.misuses(), testing::Contains(HasSubstr("the host reads bytes that a copy")));
  }
}
#endif

}  // namespace
}  // namespace spillway::offload::simulated_device_test
