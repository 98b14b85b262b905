// Runs whose checkpoints find no room.
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/tiny_disk.hpp"
#include "system/program.hpp"

namespace spillway::test::full_disk_test {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;

std::uint64_t bytes_below(const fs::path& folder) {
  std::uint64_t bytes = 0;
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    if (entry.is_regular_file()) bytes += entry.file_size();
  }
  return bytes;
}

/// Bytes of a checkpoint of the run, and the weights that it ends with.
struct Measured {
  std::uint64_t bytes = 0;
  std::string weights;
};

SpawnOptions twelve_steps(const Workplace& place, const fs::path& out, int every) {
  return into(place.on_disk({"--resume", "auto", "--set", "checkpoint.every=" + std::to_string(every)}), out);
}

Measured measure(const Workplace& place) {
  const fs::path out = place / "measured";
  EXPECT_EQ(run(program(), twelve_steps(place, out, 12)).exit_status, 0);
  const app::Json summary = app::parse_json(read_text(out / "summary.json"), "summary.json");
  return {bytes_below(out / "checkpoints"), member<std::string>(summary, "weights_xxh3")};
}

class FullDisk : public ::testing::TestWithParam<TinyDiskKind> {};

// Room for one checkpoint and a half.
TEST_P(FullDisk, KeepsTheCheckpointBeforeAndEndsARunThatIsNotWrittenDownAnyMore) {
  if (const auto why = TinyDisk::unavailable(GetParam())) GTEST_SKIP() << *why;
  const Workplace place;
  const Measured whole = measure(place);
  const TinyDisk disk(GetParam(), whole.bytes * 3 / 2 + (GetParam() == TinyDiskKind::Ext4 ? 3U << 20U : 128U << 10U));
  const fs::path filler = disk.path() / "filler";
  if (GetParam() == TinyDiskKind::Ext4) {  // What it takes for itself is not known.
    const std::uint64_t room = fs::space(disk.path()).available;
    std::ofstream(filler) << std::string(room - whole.bytes * 3 / 2 - (128U << 10U), 'f');
  }
  const fs::path out = disk.path() / "run";

  const Outcome two = run(program(), twelve_steps(place, out, 4));  // After 4 steps, 8 and 12.
  EXPECT_EQ(two.exit_status, 0) << two.error;
  EXPECT_THAT(two.output, AllOf(HasSubstr("no checkpoint after step 8"), HasSubstr("no checkpoint after step 12"),
                                HasSubstr("No space left")));
  const app::Json summary = app::parse_json(read_text(out / "summary.json"), "summary.json");
  EXPECT_EQ(member<std::string>(summary, "weights_xxh3"), whole.weights) << "training went on";
  EXPECT_THAT(names_in(out / "checkpoints"), ::testing::UnorderedElementsAre("latest", "step_0000000004"));

  const Outcome three = run(program(), twelve_steps(place, out, 2));  // After 6 steps, 8 and 10.
  EXPECT_EQ(three.exit_status, 1);
  EXPECT_THAT(three.error, HasSubstr("No space left"));
  const Outcome verified = run(program(), {.arguments = {"verify", out}});
  EXPECT_EQ(verified.exit_status, 0) << verified.output;

  fs::remove(filler);
  if (GetParam() == TinyDiskKind::Ext4) {  // Room again.
    EXPECT_EQ(run(program(), twelve_steps(place, out, 12)).exit_status, 0);
    EXPECT_THAT(names_in(out / "checkpoints"), ::testing::Contains("step_0000000012"));
  }
}

INSTANTIATE_TEST_SUITE_P(Kinds, FullDisk, ::testing::Values(TinyDiskKind::Tmpfs, TinyDiskKind::Ext4),
                         [](const auto& kind) { return kind.param == TinyDiskKind::Tmpfs ? "Tmpfs" : "Ext4"; });

}  // namespace
}  // namespace spillway::test::full_disk_test
