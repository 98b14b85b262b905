#include <spillway/app/bench/bench_step.hpp>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <spillway/app/config/json.hpp>
#include <spillway/offload/error.hpp>

#include "support/errors.hpp"
#include "support/temp_dir.hpp"

namespace spillway::app::bench_step_test {
namespace {

constexpr std::uint64_t kNumel = 50 * 16'384;

TEST(BenchStep, WritesItsRows) {
  const test::TempDir folder;
  const std::string json = (folder / "step.json").string();
  EXPECT_EQ(run_bench_step({.nvme_path = folder.path().string(),
                            .json = json,
                            .peers_folder = folder / "none",
                            .numel = kNumel,
                            .rounds = 2}),
            0);
  std::ifstream file(json);
  const Json document = parse_json(std::string(std::istreambuf_iterator<char>(file), {}), "step.json");
  EXPECT_EQ(*document.find("bench")->get_if<std::string>(), "step");
  const Json::Array& rows = *document.find("rows")->get_if<Json::Array>();
  const std::vector<std::string> names{"step_memory",    "step_memory_peer",    "step_fp32", "step_fp32_peer",
                                       "step_remainder", "step_remainder_peer", "step_8bit", "step_8bit_peer"};
  ASSERT_EQ(rows.size(), names.size());
  for (std::size_t i = 0; i < names.size(); ++i) {
    EXPECT_EQ(*rows[i].find("name")->get_if<std::string>(), names[i]);
    EXPECT_GT(*rows[i].find("value")->get_if<double>(), 0.0);
    EXPECT_TRUE(rows[i].find("ratio_to_peer")->is_null());
    EXPECT_EQ(rows[i].find("ratio_to_bound")->is_null(), rows[i].find("met")->is_null());
  }
  EXPECT_EQ(*document.find("machine")->find("host_budget_bytes")->get_if<std::uint64_t>(), kNumel * 8 / 10);
}

// A peer in the place of DeepSpeed's, which leaves its swap files where it was told to put them.
TEST(BenchStep, LeavesNothingOfAPeerBehind) {
  const test::TempDir disk;
  const test::TempDir peers;
  const std::string program = (peers / "deepspeed_step").string();
  std::ofstream(program) << R"sh(#!/bin/sh
echo '{"ready": "a peer"}'
read -r line
touch "$(echo "$line" | sed 's/.*"folder": *"\([^"]*\)".*/\1/')/left" && echo '{"numel": 819200}'
while read -r line; do echo '{"seconds": 0.5, "rss_bytes": 1048576.0}'; done
)sh";
  std::filesystem::permissions(program, std::filesystem::perms::owner_all);
  const std::string json = (peers / "step.json").string();
  run_bench_step({.nvme_path = disk.path().string(),
                  .json = json,
                  .peers_folder = peers.path().string(),
                  .numel = kNumel,
                  .rounds = 1,
                  .rows = {"step_fp32_peer"}});
  std::ifstream file(json);
  const Json document = parse_json(std::string(std::istreambuf_iterator<char>(file), {}), "step.json");
  const Json& row = document.find("rows")->get_if<Json::Array>()->front();
  EXPECT_FALSE(row.find("ratio_to_peer")->is_null());
  EXPECT_TRUE(std::filesystem::is_empty(disk.path()));
}

TEST(BenchStep, RefusesWhatTellsNothing) {
  using ::testing::HasSubstr;
  EXPECT_THAT(message_of<ConfigError>([] { run_bench_step({.numel = 1000}); }), HasSubstr("--numel"));
  EXPECT_THAT(message_of<ConfigError>([] { run_bench_step({.numel = kNumel, .rounds = 0}); }), HasSubstr("round"));
  EXPECT_THAT(message_of<ConfigError>([] { run_bench_step({.numel = kNumel, .rows = {"step"}}); }),
              HasSubstr("step_fp32"));
  EXPECT_THROW(run_bench_step({.json = "/no/such/folder/s.json", .numel = kNumel}), IoError);
}

}  // namespace
}  // namespace spillway::app::bench_step_test
