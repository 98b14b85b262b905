#include <spillway/app/probe/machine_probe.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include <spillway/offload/error.hpp>

#include "support/temp_dir.hpp"

namespace spillway::app::machine_probe_test {
namespace {

using ::testing::HasSubstr;

constexpr std::uint64_t kBytes = std::uint64_t{16} << 20;

TEST(MachineProbe, MeasuresMemoryAndEveryFolder) {
  const test::TempDir one;
  const test::TempDir other;
  const MachineProbe probe = probe_machine({.folders = {one.path().string(), other.path().string()}, .bytes = kBytes});
  EXPECT_GT(probe.memory_available_bytes, 0U);
  EXPECT_GT(probe.memory_read_rate, 0.0);
  EXPECT_GT(probe.memory_copy_rate, 0.0);
  ASSERT_EQ(probe.disks.size(), 2U);
  for (const DiskProbe& disk : probe.disks) {
    EXPECT_GT(disk.first_write_rate, 0.0);
    EXPECT_GT(disk.write_rate, 0.0);
    EXPECT_GT(disk.read_rate, 0.0);
    EXPECT_GT(disk.free_bytes, 0U);
    EXPECT_FALSE(disk.engine.empty());
    EXPECT_TRUE(std::filesystem::is_empty(disk.folder));
  }
  EXPECT_EQ(probe.io_uring_refused.empty(), probe.disks.front().engine.starts_with("io_uring"));
}

TEST(MachineProbe, SaysItAllInTextAndJson) {
  const test::TempDir folder;
  const MachineProbe probe = probe_machine({.folders = {folder.path().string()}, .bytes = kBytes});
  const std::string text = describe(probe);
  for (const char* part : {"processor", "memory", "memlock", "io_uring", "disk", "overwrites", "gpu"}) {
    EXPECT_THAT(text, HasSubstr(part));
  }
  EXPECT_THAT(text, HasSubstr(folder.path().string()));
  const Json json = parse_json(to_json(probe).dump(2), "the probe");
  for (const char* key : {"cpu", "cores", "memory_bytes", "memory_available_bytes", "memory_copy_bytes_per_s",
                          "transparent_huge_pages", "memlock_bytes", "io_uring", "disks", "gpus"}) {
    EXPECT_NE(json.find(key), nullptr) << key;
  }
  EXPECT_EQ(json.find("disks")->get_if<Json::Array>()->size(), 1U);
}

TEST(MachineProbe, NamesAFolderThatIsMissing) {
  const test::TempDir folder;
  try {
    static_cast<void>(probe_machine({.folders = {(folder / "none").string()}, .bytes = kBytes}));
    FAIL() << "there is no such folder";
  } catch (const IoError& error) {
    EXPECT_THAT(error.what(), HasSubstr("none"));
  }
}

}  // namespace
}  // namespace spillway::app::machine_probe_test
