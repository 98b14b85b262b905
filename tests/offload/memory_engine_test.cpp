// The tests that stand on the engine in memory are worth what it notices.
#include "support/memory_engine.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include <spillway/offload/aligned_block.hpp>
#include <spillway/offload/error.hpp>

namespace spillway::test::memory_engine_test {
namespace {

using namespace offload;
using Operation = IoRequest::Operation;

class MemoryEngineTest : public testing::Test {
 protected:
  IoRequest request(Operation operation, std::uint64_t disk_page, std::size_t memory_page) {
    return {operation, file, disk_page * kPageBytes, memory.bytes().subspan(memory_page * kPageBytes, kPageBytes),
            Lane::kState};
  }
  Ticket submit(Operation operation, std::uint64_t disk_page, std::size_t memory_page,
                const std::vector<Ticket>& after = {}) {
    return engine.submit(request(operation, disk_page, memory_page), after);
  }
  std::byte& byte(std::size_t page) { return memory.bytes()[page * kPageBytes]; }

  AlignedBlock memory{8 * kPageBytes};
  MemoryEngine engine{MemoryEngine::Ending::kOnDemand};
  FileId file = engine.register_file(-1, "memory");
};

TEST_F(MemoryEngineTest, MovesDataWhenATransferEndsAndNotBefore) {
  byte(0) = std::byte{1};
  const Ticket write = submit(Operation::kWrite, 0, 0);
  byte(0) = std::byte{2};
  engine.expedite(write);
  EXPECT_EQ(engine.disk(0, 1)[0], std::byte{2}) << "a buffer that is reused too early shows";
}

TEST_F(MemoryEngineTest, NotesAReadIntoMemoryThatAWriteStillNeeds) {
  static_cast<void>(submit(Operation::kWrite, 0, 0));
  static_cast<void>(submit(Operation::kRead, 1, 0));
  EXPECT_THAT(engine.hazards(), testing::ElementsAre("read 2 does not wait for write 1 in memory"));
}

TEST_F(MemoryEngineTest, NotesAReadOfAPlaceThatIsStillWritten) {
  static_cast<void>(submit(Operation::kWrite, 3, 0));
  static_cast<void>(submit(Operation::kRead, 3, 1));
  static_cast<void>(submit(Operation::kWrite, 3, 2));
  EXPECT_THAT(engine.hazards(), testing::ElementsAre("read 2 does not wait for write 1 on disk",
                                                     "write 3 does not wait for write 1 on disk"));
}

TEST_F(MemoryEngineTest, NotesNothingForTransfersThatAreOrderedOrApart) {
  const Ticket first = submit(Operation::kWrite, 0, 0);
  const Ticket second = submit(Operation::kWrite, 1, 1, {first});
  static_cast<void>(submit(Operation::kRead, 2, 0, {second}));  // Behind the first through the second.
  static_cast<void>(submit(Operation::kRead, 4, 5));
  EXPECT_THAT(engine.hazards(), testing::IsEmpty());
}

TEST_F(MemoryEngineTest, FailsWhatComesAfterAFailureAndTouchesNothing) {
  engine.set_fate(
      [](std::uint64_t number, const IoRequest&) {
        return number == 1 ? MemoryEngine::Fate::kFailed : MemoryEngine::Fate::kDone;
      },
      false);
  byte(1) = std::byte{7};
  const Ticket write = submit(Operation::kWrite, 0, 0);
  const Ticket behind = submit(Operation::kRead, 0, 1, {write});
  engine.end_all();
  EXPECT_THROW(write.wait(std::chrono::milliseconds(0)), IoError);
  EXPECT_THROW(behind.wait(std::chrono::milliseconds(0)), IoError);
  EXPECT_EQ(byte(1), std::byte{7});
  const Ticket later = submit(Operation::kRead, 0, 1, {behind});
  engine.end_all();
  EXPECT_THROW(later.wait(std::chrono::milliseconds(0)), IoError) << "though that one had failed before";
}

TEST_F(MemoryEngineTest, RefusesEverythingOnceAFailurePoisonedIt) {
  engine.set_fate([](std::uint64_t, const IoRequest&) { return MemoryEngine::Fate::kFailed; });
  static_cast<void>(submit(Operation::kWrite, 0, 0));
  engine.end_all();
  EXPECT_THROW(static_cast<void>(submit(Operation::kWrite, 0, 0)), IoError);
}

}  // namespace
}  // namespace spillway::test::memory_engine_test
