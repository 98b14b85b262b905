// Several engines as one: what comes back, and what is said when one of them fails or is slow.
#include <spillway/offload/striped_engine.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <spillway/offload/error.hpp>
#include <spillway/offload/request_state.hpp>
#include <spillway/offload/thread_engine.hpp>

#include "offload/engine_fixture.hpp"
#include "support/faulty_engine.hpp"

namespace spillway::test::striped_engine_test {
namespace {

using offload::FileId;
using offload::kPageBytes;
using offload::StripedEngine;
using offload::StripeMap;
using offload::Ticket;
using testing::HasSubstr;

constexpr std::uint64_t kUnit = 4 * kPageBytes;
constexpr std::uint64_t kBytes = 240 * kPageBytes;

/// A file in parts over as many folders as there are weights, each with an engine that can be made to fail.
struct Striped {
  explicit Striped(const std::vector<unsigned>& weights) : map(kUnit, weights) {
    std::vector<std::unique_ptr<offload::StorageEngine>> engines;
    std::vector<StripedEngine::Part> parts;
    for (std::size_t path = 0; path < weights.size(); ++path) {
      files.push_back(std::make_unique<ScratchFile>(kBytes));
      auto fallible = std::make_unique<FaultyEngine>(
          std::make_unique<offload::ThreadEngine>(offload::EngineOptions{.block_bytes = kUnit, .threads = 2}));
      faulty.push_back(fallible.get());
      engines.push_back(std::move(fallible));
      parts.push_back({files.back()->file.fd(), "file on path " + std::to_string(path)});
    }
    engine = std::make_unique<StripedEngine>(std::move(engines), map);
    file = engine->register_parts(std::move(parts));
  }

  StripeMap map;
  std::vector<std::unique_ptr<ScratchFile>> files;
  std::vector<FaultyEngine*> faulty;
  std::unique_ptr<StripedEngine> engine;
  FileId file;
};

const std::vector<std::vector<unsigned>> kWeights{{1}, {1, 1}, {7, 2}, {1, 1, 1}, {5, 3, 1}};

TEST(StripedEngine, KeepsTheBytesOfAModelWhateverTheWeights) {
  for (const std::vector<unsigned>& weights : kWeights) {
    for_random_seeds(5, [&](Random& random) {
      Striped striped(weights);
      const offload::AlignedBlock model = filled_block(kBytes, random.engine()());
      static_cast<void>(striped.engine->submit(request(kWrite, striped.file, 0, model.bytes())));
      striped.engine->drain(kLong);
      const offload::AlignedBlock scratch(kBytes);
      Ticket last;
      for (int step = 0; step < 60; ++step) {
        const std::uint64_t first = random.below(kBytes / kPageBytes);
        const std::uint64_t pages = random.between(1, std::min<std::uint64_t>(40, kBytes / kPageBytes - first));
        const std::span<std::byte> part = model.bytes().subspan(first * kPageBytes, pages * kPageBytes);
        if (random.chance(1, 2)) {
          if (last) {
            last.wait(kLong);  // The model is the memory that is written from.
          }
          std::fill(part.begin(), part.end(), static_cast<std::byte>(random.below(256)));
          last = striped.engine->submit(request(kWrite, striped.file, first * kPageBytes, part), {&last, 1});
        } else {
          const std::span<std::byte> back = scratch.bytes().first(part.size());
          striped.engine->submit(request(kRead, striped.file, first * kPageBytes, back), {&last, 1}).wait(kLong);
          ASSERT_TRUE(same(back, part));
        }
      }
      striped.engine->drain(kLong);  // The memory goes before the engine.
    });
  }
}

TEST(StripedEngine, PutsEachUnitOnThePathThatTheMapNames) {
  Striped striped({2, 1});
  const offload::AlignedBlock data = filled_block(9 * kUnit, 1);
  striped.engine->submit(request(kWrite, striped.file, 0, data.bytes()), {}).wait(kLong);
  offload::ThreadEngine plain({});
  const std::vector<FileId> files{plain.register_file(striped.files[0]->file.fd(), "0"),
                                  plain.register_file(striped.files[1]->file.fd(), "1")};
  const offload::AlignedBlock back(kUnit);
  for (std::uint64_t unit = 0; unit < 9; ++unit) {
    const StripeMap::Place place = striped.map.place(unit * kUnit);
    plain.submit(request(kRead, files[place.path], place.offset, back.bytes()), {}).wait(kLong);
    EXPECT_TRUE(same(back.bytes(), data.bytes().subspan(unit * kUnit, kUnit))) << "unit " << unit;
  }
}

TEST(StripedEngine, UsesEveryPathForOneBlock) {
  Striped striped({5, 3, 1});
  const offload::AlignedBlock data = filled_block(9 * kUnit, 1);
  striped.engine->submit(request(kWrite, striped.file, 0, data.bytes()), {}).wait(kLong);
  EXPECT_EQ(striped.faulty[0]->submitted(), 5U);
  EXPECT_EQ(striped.faulty[1]->submitted(), 3U);
  EXPECT_EQ(striped.faulty[2]->submitted(), 1U);
}

TEST(StripedEngine, NamesThePathThatFailsAndIsPoisonedByIt) {
  for (const auto operation : {kWrite, kRead}) {
    Striped striped({1, 1, 1});
    const offload::AlignedBlock data = filled_block(9 * kUnit, 1);
    striped.engine->submit(request(kWrite, striped.file, 0, data.bytes()), {}).wait(kLong);
    striped.faulty[1]->inject({.nth = 2, .only = {}});
    const Ticket failing = striped.engine->submit(request(operation, striped.file, 0, data.bytes()));
    try {
      failing.wait(kLong);
      FAIL() << "path 1 failed";
    } catch (const IoError& error) {
      EXPECT_EQ(error.failure().operation, to_string(operation));
      EXPECT_EQ(error.failure().error_number, EIO);
      EXPECT_EQ(error.failure().offset, 4 * kUnit) << "in the whole";
      EXPECT_EQ(error.failure().bytes, kUnit);
      EXPECT_THAT(error.what(), HasSubstr("at offset " + std::to_string(kUnit) + " of the file on path 1"));
    }
    EXPECT_THROW(static_cast<void>(striped.engine->submit(request(kRead, striped.file, 0, data.bytes()))), IoError)
        << "paths that work do not hide one that does not";
    EXPECT_THROW(striped.engine->drain(kLong), IoError);
  }
}

TEST(StripedEngine, ReportsAPathThatIsRefusedAtSubmission) {
  Striped striped({1, 1});
  const offload::AlignedBlock data = filled_block(8 * kUnit, 1);
  striped.faulty[1]->inject({.nth = 1, .for_good = true, .only = {}});
  const Ticket first = striped.engine->submit(request(kWrite, striped.file, 0, data.bytes()));
  EXPECT_THROW(first.wait(kLong), IoError);
  EXPECT_THROW(static_cast<void>(striped.engine->submit(request(kWrite, striped.file, 0, data.bytes()))), IoError);
}

TEST(StripedEngine, IsNotPoisonedByWhatOthersFailed) {
  Striped striped({1, 1});
  const offload::AlignedBlock data = filled_block(8 * kUnit, 1);
  const auto gate = std::make_shared<offload::RequestState>(IoFailure{});
  const Ticket after(gate);
  const Ticket ticket = striped.engine->submit(request(kWrite, striped.file, 0, data.bytes()), {&after, 1});
  gate->finish(offload::make_transfer_failure(kWrite, "elsewhere", 0, kPageBytes, -EIO));
  try {
    ticket.wait(kLong);
    FAIL() << "what it comes after failed";
  } catch (const IoError& error) {
    EXPECT_EQ(error.failure().path, "elsewhere");
  }
  striped.engine->submit(request(kWrite, striped.file, 0, data.bytes()), {}).wait(kLong);
  striped.engine->drain(kLong);
}

TEST(StripedEngine, NamesThePathThatIsSlow) {
  Striped striped({1, 1, 1});
  const offload::AlignedBlock data = filled_block(6 * kUnit, 1);
  striped.faulty[2]->inject({.kind = FaultKind::kDelay, .nth = 1, .for_good = true, .only = {}});
  const Ticket ticket = striped.engine->submit(request(kWrite, striped.file, 0, data.bytes()));
  // The others get all the time that they take, so that only the delayed one can be named.
  while (!ticket.done() && striped.faulty[2]->log().size() < 2) {
    std::this_thread::yield();
  }
  for (const std::size_t path : {0U, 1U}) {
    striped.faulty[path]->drain(kLong);
  }
  try {
    ticket.wait(std::chrono::milliseconds(1));
    FAIL() << "path 2 has not ended";
  } catch (const TimedOut& error) {
    EXPECT_THAT(error.what(), HasSubstr("file on path 2"));
  }
  striped.faulty[2]->release_delayed();
  ticket.wait(kLong);
}

TEST(StripedEngine, SaysWhatAllItsEnginesAre) {
  const Striped striped({1, 1});
  EXPECT_EQ(striped.engine->info().name, "threads");
  EXPECT_FALSE(striped.engine->info().fixed_buffers);
}

}  // namespace
}  // namespace spillway::test::striped_engine_test
