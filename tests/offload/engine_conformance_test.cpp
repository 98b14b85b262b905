// What every storage engine promises, whichever it is.
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <thread>

#include <spillway/offload/request_state.hpp>
#include <spillway/offload/stats.hpp>
#include <spillway/offload/striped_engine.hpp>
#include <spillway/offload/thread_engine.hpp>
#ifdef SPILLWAY_WITH_URING
#include <spillway/offload/uring_engine.hpp>
#endif

#include "offload/engine_fixture.hpp"
#include "support/faulty_engine.hpp"
#include "support/memory_engine.hpp"

namespace spillway::test::engine_conformance_test {
namespace {

using offload::EngineOptions;
using offload::FileId;
using offload::IoRequest;
using offload::kPageBytes;
using offload::Lane;
using offload::RequestState;
using offload::StorageEngine;
using offload::Ticket;

struct EngineCase {
  std::string name;
  std::function<std::unique_ptr<StorageEngine>(const EngineOptions&)> make;
};

void PrintTo(const EngineCase& engine, std::ostream* out) { *out << engine.name; }

std::vector<EngineCase> every_engine() {
  std::vector<EngineCase> cases;
#ifdef SPILLWAY_WITH_URING
  cases.push_back({"io_uring", [](const EngineOptions& options) { return offload::make_uring_engine(options); }});
#endif
  cases.push_back({"threads", [](const EngineOptions& o) { return std::make_unique<offload::ThreadEngine>(o); }});
  cases.push_back(
      {"memory", [](const EngineOptions&) { return std::make_unique<MemoryEngine>(MemoryEngine::Ending::kShuffled); }});
  cases.push_back({"decorated", [](const EngineOptions& options) {
                     return std::make_unique<FaultyEngine>(std::make_unique<offload::ThreadEngine>(options));
                   }});
  cases.push_back({"striped", [](const EngineOptions& options) {
                     std::vector<std::unique_ptr<StorageEngine>> paths;
                     for (int path = 0; path < 3; ++path) {
                       paths.push_back(std::make_unique<offload::ThreadEngine>(options));
                     }
                     constexpr std::array<unsigned, 3> kWeights{3, 1, 2};
                     return std::make_unique<offload::StripedEngine>(std::move(paths),
                                                                     offload::StripeMap(options.block_bytes, kWeights));
                   }});
  return cases;
}

class EngineConformance : public testing::TestWithParam<EngineCase> {
 protected:
  static constexpr std::uint64_t kFilePages = 512;

  void start(const EngineOptions& options) {
    engine = GetParam().make(options);
    file = engine->register_file(scratch.file.fd(), "scratch file");
  }
  void SetUp() override { start({.block_bytes = 4 * kPageBytes, .queue_depth = 4, .threads = 3}); }

  void wait(const Ticket& ticket) {
    engine->expedite(ticket);
    ticket.wait(kLong);
  }
  void write(std::uint64_t offset, std::span<std::byte> memory) {
    wait(engine->submit(request(kWrite, file, offset, memory)));
  }
  void read(std::uint64_t offset, std::span<std::byte> memory) {
    wait(engine->submit(request(kRead, file, offset, memory)));
  }

  ScratchFile scratch{kFilePages * kPageBytes};
  std::unique_ptr<StorageEngine> engine;
  FileId file;
};

INSTANTIATE_TEST_SUITE_P(Engines, EngineConformance, testing::ValuesIn(every_engine()),
                         [](const auto& test) { return test.param.name; });

TEST_P(EngineConformance, BringsBackWhatWasWrittenWhateverOffsetAndLength) {
  for_random_seeds(10, [&](Random& random) {
    const offload::AlignedBlock data = filled_block(kFilePages * kPageBytes, random.engine()());
    const offload::AlignedBlock back(data.bytes().size());
    for (const auto operation : {kWrite, kRead}) {  // Pieces of random length, all under way at once.
      const std::span<std::byte> memory = operation == kWrite ? data.bytes() : back.bytes();
      for (std::uint64_t page = 0; page < kFilePages;) {
        const std::uint64_t pages = std::min(random.between(1, 40), kFilePages - page);
        static_cast<void>(engine->submit(request(operation, file, page * kPageBytes,
                                                 memory.subspan(page * kPageBytes, pages * kPageBytes),
                                                 static_cast<Lane>(random.below(offload::kLaneCount)))));
        page += pages;
      }
      engine->drain(kLong);
    }
    ASSERT_TRUE(same(data.bytes(), back.bytes()));
  });
}

TEST_P(EngineConformance, UsesRegisteredMemoryAndMemoryThatIsRegisteredNoMore) {
  const offload::AlignedBlock data = filled_block(8 * kPageBytes, 3);
  const offload::AlignedBlock back(8 * kPageBytes);
  engine->register_memory(data.bytes());
  engine->register_memory(back.bytes());
  for (int round = 0; round < 2; ++round) {
    write(0, data.bytes());
    std::fill(back.bytes().begin(), back.bytes().end(), std::byte{0});
    read(0, back.bytes());
    EXPECT_TRUE(same(data.bytes(), back.bytes()));
    if (round == 0) {
      engine->unregister_memory(data.bytes());
      engine->unregister_memory(back.bytes());
    }
  }
}

TEST_P(EngineConformance, KeepsManyFilesApart) {
  if (GetParam().name == "memory") {
    return;  // It has one disk, whatever the file.
  }
  constexpr std::size_t kFiles = 80;  // More than io_uring's table of registered files holds.
  const offload::AlignedBlock data = filled_block(kFiles * kPageBytes, 4);
  const offload::AlignedBlock back(kFiles * kPageBytes);
  std::vector<std::unique_ptr<ScratchFile>> scratches;
  std::vector<FileId> files;
  for (std::size_t i = 0; i < kFiles; ++i) {
    scratches.push_back(std::make_unique<ScratchFile>(kPageBytes));
    files.push_back(engine->register_file(scratches.back()->file.fd(), "file " + std::to_string(i)));
  }
  for (const auto operation : {kWrite, kRead}) {
    const std::span<std::byte> memory = operation == kWrite ? data.bytes() : back.bytes();
    for (std::size_t i = 0; i < kFiles; ++i) {
      static_cast<void>(engine->submit(request(operation, files[i], 0, memory.subspan(i * kPageBytes, kPageBytes))));
    }
    engine->drain(kLong);
  }
  EXPECT_TRUE(same(data.bytes(), back.bytes()));
}

// A ring of buffers: the next read into a buffer is submitted behind the write of what it held.
TEST_P(EngineConformance, ReadsBehindAWriteIntoTheSameBuffer) {
  constexpr std::uint64_t kPiece = 6 * kPageBytes;
  const offload::AlignedBlock data = filled_block(2 * kPiece, 5);
  const std::span<std::byte> first = data.bytes().first(kPiece);
  const std::span<std::byte> second = data.bytes().last(kPiece);
  write(kPiece, second);
  const offload::AlignedBlock buffer(kPiece);
  const offload::AlignedBlock back(kPiece);
  for (int round = 0; round < 200; ++round) {
    std::copy(first.begin(), first.end(), buffer.bytes().begin());
    const Ticket out = engine->submit(request(kWrite, file, 0, buffer.bytes(), Lane::kWriteBack));
    const Ticket in = engine->submit(request(kRead, file, kPiece, buffer.bytes()), {&out, 1});
    wait(in);
    ASSERT_TRUE(out.done());
    ASSERT_TRUE(same(buffer.bytes(), second));
    read(0, back.bytes());
    ASSERT_TRUE(same(back.bytes(), first));
  }
}

TEST_P(EngineConformance, FollowsAChainAThousandLong) {
  const offload::AlignedBlock buffer = filled_block(2 * kPageBytes, 6);
  const offload::AlignedBlock original = filled_block(2 * kPageBytes, 6);
  Ticket last;
  for (std::uint64_t i = 0; i < 500; ++i) {  // Carries the bytes from place to place.
    const std::uint64_t offset = i % 256 * 2 * kPageBytes;
    const Ticket out = engine->submit(request(kWrite, file, offset, buffer.bytes(), Lane::kCheckpoint), {&last, 1});
    last = engine->submit(request(kRead, file, offset, buffer.bytes(), Lane::kBank), {&out, 1});
  }
  wait(last);
  EXPECT_TRUE(same(buffer.bytes(), original.bytes()));
}

TEST_P(EngineConformance, ServesSixtyFourRequestsOnTwoBuffersFromFourThreads) {
  constexpr std::uint64_t kPiece = 5 * kPageBytes;
  const offload::AlignedBlock buffers(2 * kPiece);
  for (int round = 0; round < 25; ++round) {
    std::mutex mutex;
    std::array<Ticket, 2> last;
    {
      std::vector<std::jthread> threads;
      for (std::uint64_t t = 0; t < 4; ++t) {
        threads.emplace_back([&, t] {
          for (std::uint64_t i = 0; i < 16; ++i) {
            const std::lock_guard lock(mutex);
            const std::uint64_t which = (t + i) % 2;
            last.at(which) = engine->submit(
                request(i % 4 < 2 ? kWrite : kRead, file, (16 * t + i) * kPiece,
                        buffers.bytes().subspan(which * kPiece, kPiece), i % 3 == 0 ? Lane::kBank : Lane::kState),
                {&last.at(which), 1});
          }
        });
      }
    }
    wait(last[0]);
    wait(last[1]);
  }
  engine->drain(kLong);
}

TEST_P(EngineConformance, TakesAnEmptyTicketForOneThatHasEnded) {
  const offload::AlignedBlock data = filled_block(kPageBytes, 7);
  const Ticket none;
  wait(engine->submit(request(kWrite, file, 0, data.bytes()), {&none, 1}));
}

TEST_P(EngineConformance, ExpeditesWhatIsQueuedDoneOrUnknown) {
  const offload::AlignedBlock data = filled_block(64 * kPageBytes, 8);
  const Ticket slow = engine->submit(request(kWrite, file, 0, data.bytes(), Lane::kCheckpoint));
  const Ticket behind = engine->submit(request(kRead, file, 0, data.bytes(), Lane::kCheckpoint), {&slow, 1});
  wait(behind);
  engine->expedite(behind);
  engine->expedite(Ticket{});
  engine->expedite(Ticket(std::make_shared<RequestState>(IoFailure{})));
  EXPECT_TRUE(slow.done());
}

TEST_P(EngineConformance, SettlesWhatIsQueuedBeforeItDies) {
  const offload::AlignedBlock data = filled_block(kFilePages * kPageBytes, 9);
  std::vector<Ticket> tickets;
  for (std::uint64_t page = 0; page < kFilePages; page += 8) {
    tickets.push_back(engine->submit(
        request(kWrite, file, page * kPageBytes, data.bytes().subspan(page * kPageBytes, 8 * kPageBytes)),
        std::span(tickets).last(std::min<std::size_t>(tickets.size(), page % 3))));
  }
  engine.reset();
  for (const Ticket& ticket : tickets) {
    ASSERT_TRUE(ticket.done());
    EXPECT_NO_THROW(ticket.wait(kLong));
  }
  if (GetParam().name != "memory") {
    start({});
    const offload::AlignedBlock back(data.bytes().size());
    read(0, back.bytes());
    EXPECT_TRUE(same(data.bytes(), back.bytes()));
  }
}

// What is below needs requests that wait for others than the engine's own, which a store never submits.
class EngineWithThreads : public EngineConformance {};

INSTANTIATE_TEST_SUITE_P(Engines, EngineWithThreads, testing::ValuesIn([] {
                           std::vector<EngineCase> cases = every_engine();
                           std::erase_if(cases, [](const EngineCase& engine) { return engine.name == "memory"; });
                           return cases;
                         }()),
                         [](const auto& test) { return test.param.name; });

TEST_P(EngineWithThreads, CountsWhatItMovesInChunksByKindAndTime) {
  offload::Stats stats;
  start({.block_bytes = 4 * kPageBytes, .queue_depth = 4, .threads = 3, .stats = &stats});
  const offload::AlignedBlock data = filled_block(10 * kPageBytes, 13);
  write(0, data.bytes());
  write(0, data.bytes());
  read(0, data.bytes());
  engine->drain(kLong);
  EXPECT_EQ(stats.writes.requests, 6U);  // 4 + 4 + 2 pages, twice.
  EXPECT_EQ(stats.writes.bytes, 20 * kPageBytes);
  EXPECT_EQ(stats.reads.requests, 3U);
  EXPECT_EQ(stats.reads.bytes, 10 * kPageBytes);
  for (const offload::IoCounters* counters : {&stats.reads, &stats.writes}) {
    std::uint64_t timed = 0;
    for (const auto& bucket : counters->latency) {
      timed += bucket;
    }
    EXPECT_EQ(timed, counters->requests);
    EXPECT_LE(counters->latency_us_below(0.5), counters->latency_us_below(1.0));
    EXPECT_LT(counters->latency_us_below(1.0), 30'000'000U);
    EXPECT_GT(counters->latency_us_below(1.0), 0U);
  }
  engine.reset();  // Before its counters.
}

TEST_P(EngineWithThreads, TimesOutAndEndsAllTheSame) {
  const offload::AlignedBlock data = filled_block(kPageBytes, 10);
  const auto gate = std::make_shared<RequestState>(IoFailure{});
  const Ticket closed(gate);
  const Ticket ticket = engine->submit(request(kWrite, file, 0, data.bytes()), {&closed, 1});
  try {
    ticket.wait(std::chrono::milliseconds(1));
    FAIL() << "the transfer can't have ended";
  } catch (const TimedOut& error) {
    EXPECT_NE(std::string(error.what()).find("write of 4096 bytes at offset 0 in scratch file"), std::string::npos);
  }
  EXPECT_THROW(engine->drain(std::chrono::milliseconds(1)), TimedOut);
  EXPECT_FALSE(ticket.done());
  gate->finish(nullptr);
  ticket.wait(kLong);
  engine->drain(kLong);
}

TEST_P(EngineWithThreads, TouchesNothingWhereWhatItComesAfterFailed) {
  const offload::AlignedBlock data = filled_block(kPageBytes, 11);
  const offload::AlignedBlock buffer = filled_block(kPageBytes, 12);
  const offload::AlignedBlock before = filled_block(kPageBytes, 12);
  write(0, data.bytes());
  const auto gate = std::make_shared<RequestState>(IoFailure{});
  const auto open = std::make_shared<RequestState>(IoFailure{});
  const std::array<Ticket, 2> after{Ticket(gate), Ticket(open)};
  const Ticket ticket = engine->submit(request(kRead, file, 0, buffer.bytes()), after);
  const Ticket behind = engine->submit(request(kRead, file, 0, buffer.bytes()), {&ticket, 1});
  gate->finish(offload::make_transfer_failure(kWrite, "elsewhere", 0, kPageBytes, -EIO));
  EXPECT_FALSE(ticket.done()) << "the other one may still use the buffer";
  open->finish(nullptr);
  for (const Ticket& failed : {ticket, behind}) {
    try {
      failed.wait(kLong);
      FAIL() << "it can't have succeeded";
    } catch (const IoError& error) {
      EXPECT_EQ(error.failure().path, "elsewhere");
    }
  }
  EXPECT_TRUE(same(buffer.bytes(), before.bytes()));
}

}  // namespace
}  // namespace spillway::test::engine_conformance_test
