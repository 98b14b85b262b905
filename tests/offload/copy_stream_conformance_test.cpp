// What every CopyStream promises.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <future>
#include <memory>
#include <stdexcept>
#include <thread>
#include <vector>

#include <spillway/offload/copy_stream.hpp>
#include <spillway/offload/error.hpp>
#include <spillway/offload/simulated_device.hpp>

namespace spillway::offload::copy_stream_conformance_test {
namespace {

struct StreamKind {
  std::function<std::unique_ptr<CopyStream>()> make;
  bool available = true;
  const char* missing = "";  ///< What is not there where it is not available.
};

class CopyStreamConformance : public testing::TestWithParam<StreamKind> {
 protected:
  void SetUp() override {
    if (!GetParam().available) {
      GTEST_SKIP() << GetParam().missing;
    }
  }
  [[nodiscard]] static std::unique_ptr<CopyStream> make() { return GetParam().make(); }
};

/// A gate in a stream: what is queued behind it waits until the test opens it.
class StreamGate {
 public:
  explicit StreamGate(CopyStream& stream) {
    stream.run([future = std::make_shared<std::future<void>>(gate_.get_future())] { future->wait(); });
  }
  ~StreamGate() { open(); }
  void open() {
    if (!open_) {
      open_ = true;
      gate_.set_value();
    }
  }

 private:
  std::promise<void> gate_;
  bool open_ = false;
};

TEST_P(CopyStreamConformance, ReturnsFromEveryCallBeforeTheWorkIsDone) {
  std::vector<std::byte> source(1000, std::byte{7});
  std::vector<std::byte> destination(1000);
  const auto stream = make();
  StreamGate gate(*stream);
  std::atomic<bool> ran = false;
  stream->run([&] { ran = true; });
  const auto event = stream->record();
  EXPECT_FALSE(event->done());
  EXPECT_FALSE(ran);
  gate.open();
  event->synchronize();
  EXPECT_TRUE(event->done());
  EXPECT_TRUE(ran);
  stream->copy(destination, source);
  stream->record()->synchronize();
  EXPECT_EQ(destination, source);
}

TEST_P(CopyStreamConformance, RunsEverythingOfOneStreamInOrder) {
  std::vector<int> seen;
  std::vector<std::byte> first(64, std::byte{1});
  std::vector<std::byte> second(64);
  std::vector<std::byte> third(64);
  const auto stream = make();
  for (int i = 0; i < 20; ++i) {
    stream->run([&seen, i] { seen.push_back(i); });
  }
  stream->copy(second, first);
  stream->run([&first] { std::fill(first.begin(), first.end(), std::byte{9}); });
  stream->copy(third, second);
  stream->record()->synchronize();
  EXPECT_TRUE(std::is_sorted(seen.begin(), seen.end()));
  EXPECT_EQ(seen.size(), 20U);
  EXPECT_THAT(third, testing::Each(std::byte{1}));
}

TEST_P(CopyStreamConformance, OrdersTwoStreamsByAnEvent) {
  const auto producer = make();
  const auto consumer = make();
  for (int round = 0; round < 20; ++round) {
    int value = 0;
    int read = -1;
    StreamGate gate(*producer);
    producer->run([&value, round] { value = round + 1; });
    consumer->wait(producer->record());
    consumer->run([&value, &read] { read = value; });
    const auto last = consumer->record();
    EXPECT_FALSE(last->done());
    gate.open();
    last->synchronize();
    EXPECT_EQ(read, round + 1);
  }
}

TEST_P(CopyStreamConformance, IsDoneForAnEventOfAnEmptyStream) {
  const auto event = make()->record();
  event->synchronize();
  EXPECT_TRUE(event->done());
}

TEST_P(CopyStreamConformance, FinishesWhatIsQueuedBeforeItDies) {
  std::atomic<int> ran = 0;
  std::shared_ptr<Event> event;
  {
    const auto stream = make();
    for (int i = 0; i < 10; ++i) {
      stream->run([&ran] { ++ran; });
    }
    event = stream->record();
  }
  EXPECT_EQ(ran, 10);
  EXPECT_TRUE(event->done()) << "an event may outlive its stream";
}

TEST_P(CopyStreamConformance, ThrowsATasksExceptionAtLaterEventsOfThatStreamOnly) {
  const auto stream = make();
  const auto other = make();
  std::atomic<bool> ran_behind = false;
  const auto before = stream->record();
  stream->run([] { throw std::runtime_error("first"); });
  stream->run([] { throw std::runtime_error("second"); });
  stream->run([&] { ran_behind = true; });
  const auto behind = stream->record();
  other->wait(behind);
  const auto elsewhere = other->record();
  elsewhere->synchronize();
  EXPECT_TRUE(ran_behind);
  before->synchronize();
  for (int i = 0; i < 2; ++i) {
    try {
      behind->synchronize();
      FAIL() << "the event hides what a task before it threw";
    } catch (const std::runtime_error& error) {
      EXPECT_STREQ(error.what(), "first");
    }
    EXPECT_THROW(static_cast<void>(behind->done()), std::runtime_error);
  }
}

TEST_P(CopyStreamConformance, TakesWorkFromSeveralThreads) {
  const auto stream = make();
  int count = 0;  // Plain: the stream is what orders the tasks.
  {
    std::vector<std::jthread> threads;
    for (int t = 0; t < 4; ++t) {
      threads.emplace_back([&] {
        for (int i = 0; i < 25; ++i) {
          stream->run([&count] { ++count; });
          static_cast<void>(stream->record());
        }
      });
    }
  }
  stream->record()->synchronize();
  EXPECT_EQ(count, 100);
}

TEST_P(CopyStreamConformance, RefusesADestinationThatIsTooShort) {
  std::vector<std::byte> source(10);
  std::vector<std::byte> destination(9);
  EXPECT_THROW(make()->copy(destination, source), Error);
  make()->copy({}, {});
}

TEST_P(CopyStreamConformance, RefusesAnEventOfAnotherKind) {
  class Foreign final : public Event {
    [[nodiscard]] bool done() const override { return true; }
    void synchronize() const override {}
  };
  EXPECT_THROW(make()->wait(std::make_shared<Foreign>()), Error);
}

INSTANTIATE_TEST_SUITE_P(HostStream, CopyStreamConformance,
                         testing::Values(StreamKind{[] { return make_host_stream(); }},
                                         StreamKind{[] { return make_host_stream(1); }},
                                         StreamKind{[] { return make_host_stream(77); }}));
INSTANTIATE_TEST_SUITE_P(SimulatedDevice, CopyStreamConformance,
                         testing::Values(StreamKind{[] { return SimulatedDevice(1).make_stream(); }},
                                         StreamKind{[] { return SimulatedDevice(1, 5).make_stream(); }}));
INSTANTIATE_TEST_SUITE_P(CudaStream, CopyStreamConformance,
                         testing::Values(StreamKind{make_cuda_stream, cuda_available(), "no CUDA device"}));

}  // namespace
}  // namespace spillway::offload::copy_stream_conformance_test
