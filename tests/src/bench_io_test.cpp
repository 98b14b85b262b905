#include <spillway/app/bench/bench_io.hpp>

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <string>

#include <spillway/app/config/json.hpp>
#include <spillway/offload/error.hpp>

#include "support/temp_dir.hpp"

namespace spillway::app::bench_io_test {
namespace {

constexpr std::uint64_t kBytes = std::uint64_t{64} << 20;

Json measure(const test::TempDir& folder) {
  const std::filesystem::path json = folder / "io.json";
  const std::filesystem::path disk = folder / "disk";
  std::filesystem::create_directory(disk);
  EXPECT_EQ(run_bench_io({.nvme_path = disk.string(), .json = json.string(), .bytes = kBytes, .rounds = 2}), 0);
  EXPECT_TRUE(std::filesystem::is_empty(disk)) << "files were left behind";
  std::ifstream file(json);
  return parse_json(std::string(std::istreambuf_iterator<char>(file), {}), "io.json");
}

TEST(BenchIo, WritesRowsForReadsOverwritesAndFirstWrites) {
  const test::TempDir folder;
  const Json document = measure(folder);
  const auto& rows = *document.find("rows")->get_if<Json::Array>();
  ASSERT_EQ(rows.size(), 3U);
  const char* const names[] = {"read", "overwrite", "first_write"};
  for (std::size_t i = 0; i < rows.size(); ++i) {
    EXPECT_EQ(*rows[i].find("name")->get_if<std::string>(), names[i]);
    EXPECT_EQ(*rows[i].find("unit")->get_if<std::string>(), "GB/s");
    EXPECT_GT(*rows[i].find("value")->get_if<double>(), 0.0);
    EXPECT_EQ(rows[i].find("bar")->is_null(), i == 2) << "first writes have no bar";
    EXPECT_EQ(rows[i].find("met")->is_null(), rows[i].find("bar")->is_null() || rows[i].find("bound")->is_null());
  }
  for (const char* name :
       {"file_system", "bytes", "rounds", "engine", "fixed_buffers", "direct_io", "huge_page_bytes"}) {
    EXPECT_NE(document.find("machine")->find(name), nullptr) << name;
  }
}

/// Empties $PATH while it lives.
class NoPrograms {
 public:
  NoPrograms() : former_(std::getenv("PATH")) { ::setenv("PATH", "", 1); }
  ~NoPrograms() { ::setenv("PATH", former_.c_str(), 1); }
  NoPrograms(const NoPrograms&) = delete;
  NoPrograms& operator=(const NoPrograms&) = delete;

 private:
  std::string former_;
};

TEST(BenchIo, GoesOnWithoutFioAndSaysSo) {
  const test::TempDir folder;
  const NoPrograms none;
  const Json document = measure(folder);
  for (const Json& row : *document.find("rows")->get_if<Json::Array>()) {
    EXPECT_TRUE(row.find("peer")->is_null());
    EXPECT_TRUE(row.find("ratio_to_peer")->is_null());
    EXPECT_NE(row.find("why")->get_if<std::string>()->find("fio is not installed"), std::string::npos);
  }
}

TEST(BenchIo, RefusesWhatTellsNothing) {
  EXPECT_THROW(static_cast<void>(run_bench_io({.bytes = 1024})), ConfigError);
  EXPECT_THROW(static_cast<void>(run_bench_io({.bytes = kBytes, .rounds = 0})), ConfigError);
}

TEST(BenchIo, RefusesFoldersThatAreMissingBeforeItMeasures) {
  const test::TempDir folder;
  try {
    static_cast<void>(
        run_bench_io({.nvme_path = folder.path().string(), .json = (folder / "none" / "io.json").string()}));
    FAIL() << "there is no folder for the JSON file";
  } catch (const IoError& error) {
    EXPECT_NE(std::string(error.what()).find("--json"), std::string::npos) << error.what();
  }
  EXPECT_THROW(static_cast<void>(run_bench_io({.nvme_path = (folder / "none").string()})), IoError);
}

}  // namespace
}  // namespace spillway::app::bench_io_test
