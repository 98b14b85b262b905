#include <spillway/app/bench/bench_io.hpp>

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <string>
#include <vector>

#include <spillway/app/config/json.hpp>
#include <spillway/offload/error.hpp>

#include "support/temp_dir.hpp"

namespace spillway::app::bench_io_test {
namespace {

constexpr std::uint64_t kBytes = std::uint64_t{64} << 20;

Json measure(const test::TempDir& folder, const std::vector<std::string>& rows) {
  const std::filesystem::path json = folder / "io.json";
  const std::filesystem::path disk = folder / "disk";
  std::filesystem::create_directory(disk);
  EXPECT_EQ(run_bench_io({.nvme_path = disk.string(),
                          .json = json.string(),
                          .bytes = kBytes,
                          .rounds = 2,
                          .rows = rows,
                          .peers_folder = (folder / "peers").string()}),
            0);
  EXPECT_TRUE(std::filesystem::is_empty(disk)) << "files were left behind";
  std::ifstream file(json);
  return parse_json(std::string(std::istreambuf_iterator<char>(file), {}), "io.json");
}

const Json::Array& rows_of(const Json& document) { return *document.find("rows")->get_if<Json::Array>(); }

std::string text(const Json& row, const char* key) { return *row.find(key)->get_if<std::string>(); }

TEST(BenchIo, WritesTheRowsOfTheEngine) {
  const test::TempDir folder;
  const Json document = measure(folder, {"read", "overwrite", "mix", "first_write"});
  ASSERT_EQ(rows_of(document).size(), 4U);
  const char* const names[] = {"read", "overwrite", "mix", "first_write"};
  for (std::size_t i = 0; i < 4; ++i) {
    const Json& row = rows_of(document)[i];
    EXPECT_EQ(text(row, "name"), names[i]);
    EXPECT_EQ(text(row, "unit"), "GB/s");
    EXPECT_GT(*row.find("value")->get_if<double>(), 0.0);
    EXPECT_EQ(row.find("bar")->is_null(), i == 3) << "first writes have no bar";
    EXPECT_EQ(row.find("met")->is_null(), row.find("bar")->is_null() || row.find("bound")->is_null());
  }
  for (const char* name :
       {"file_system", "bytes", "rounds", "engine", "fixed_buffers", "direct_io", "huge_page_bytes"}) {
    EXPECT_NE(document.find("machine")->find(name), nullptr) << name;
  }
}

TEST(BenchIo, WritesTheRowsOfTheBlockStore) {
  const test::TempDir folder;
  const Json document =
      measure(folder, {"overlap_on", "overlap_unchecked", "overlap_off", "checksum_read", "checksum_write"});
  ASSERT_EQ(rows_of(document).size(), 5U);
  for (const Json& row : rows_of(document)) {
    EXPECT_GT(*row.find("value")->get_if<double>(), 0.0) << text(row, "name");
    EXPECT_GT(*row.find("ratio_to_bound")->get_if<double>(), 0.0) << text(row, "name");
  }
}

TEST(BenchIo, TunesAndSaysWhatItTookAndThatAPeerIsMissing) {
  const test::TempDir folder;
  const Json document = measure(folder, {"read_tuned", "read_deepspeed", "read_cpu"});
  EXPECT_NE(document.find("machine")->find("read_tuned"), nullptr);
  ASSERT_EQ(rows_of(document).size(), 3U);
  const Json& beside = rows_of(document)[1];
  EXPECT_TRUE(beside.find("peer")->is_null());
  EXPECT_NE(text(beside, "why").find("scripts/bootstrap peers"), std::string::npos);
  EXPECT_EQ(text(beside, "bar_to"), "peer");
}

/// A program in the place of DeepSpeed's side that answers every request with `answer`.
void pretend_peer(const test::TempDir& folder, const std::string& answer) {
  std::filesystem::create_directory(folder / "peers");
  const std::filesystem::path program = folder / "peers" / "deepspeed_io";
  std::ofstream(program) << "#!/bin/sh\necho '{\"ready\": \"pretended\"}'\nwhile read -r line; do echo '" << answer
                         << "'; done\n";
  std::filesystem::permissions(program, std::filesystem::perms::owner_all);
}

TEST(BenchIo, TakesThePeersFiguresByTurns) {
  const test::TempDir folder;
  pretend_peer(folder, R"({"seconds": 64.0, "cpu_s": 32.0})");
  const Json document = measure(folder, {"read_deepspeed", "read_cpu"});
  ASSERT_EQ(rows_of(document).size(), 2U);
  const double rate = static_cast<double>(kBytes) / 64.0 / 1e9;
  EXPECT_DOUBLE_EQ(*rows_of(document)[0].find("peer")->get_if<double>(), rate);
  EXPECT_EQ(text(rows_of(document)[0], "peer_name"), "pretended");
  EXPECT_TRUE(*rows_of(document)[0].find("met")->get_if<bool>());
  EXPECT_DOUBLE_EQ(*rows_of(document)[1].find("peer")->get_if<double>(), 32.0 * 16.0);
}

TEST(BenchIo, SaysWhatAPeerFailsOf) {
  const test::TempDir folder;
  pretend_peer(folder, R"({"error": "no libaio"})");
  const Json document = measure(folder, {"read_deepspeed"});
  EXPECT_TRUE(rows_of(document)[0].find("peer")->is_null());
  EXPECT_NE(text(rows_of(document)[0], "why").find("no libaio"), std::string::npos);
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
  const Json document = measure(folder, {"read", "fio_read"});
  ASSERT_EQ(rows_of(document).size(), 1U) << "fio beside itself";
  for (const Json& row : rows_of(document)) {
    EXPECT_TRUE(row.find("peer")->is_null());
    EXPECT_TRUE(row.find("ratio_to_peer")->is_null());
    EXPECT_NE(row.find("why")->get_if<std::string>()->find("fio is not installed"), std::string::npos);
  }
}

TEST(BenchIo, RefusesWhatTellsNothing) {
  EXPECT_THROW(static_cast<void>(run_bench_io({.bytes = 1024})), ConfigError);
  EXPECT_THROW(static_cast<void>(run_bench_io({.bytes = kBytes, .rounds = 0})), ConfigError);
  EXPECT_THROW(static_cast<void>(run_bench_io({.bytes = kBytes, .rows = {"reads"}})), ConfigError);
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
