#include <spillway/app/bench/bench_checkpoint.hpp>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <spillway/app/config/json.hpp>
#include <spillway/offload/error.hpp>

#include "support/errors.hpp"
#include "support/temp_dir.hpp"

namespace spillway::app::bench_checkpoint_test {
namespace {

using ::testing::HasSubstr;

TEST(BenchCheckpoint, WritesItsRowsAndLeavesNothing) {
  const test::TempDir folder;
  const test::TempDir disk;
  const std::string json = (folder / "checkpoint.json").string();
  EXPECT_EQ(run_bench_checkpoint({.path = disk.path().string(), .json = json, .bytes = 64U << 20U, .rounds = 1}), 0);
  std::ifstream file(json);
  const Json document = parse_json(std::string(std::istreambuf_iterator<char>(file), {}), "checkpoint.json");
  const Json::Array& rows = *document.find("rows")->get_if<Json::Array>();
  ASSERT_EQ(rows.size(), 2U);
  EXPECT_EQ(*rows[0].find("name")->get_if<std::string>(), "save");
  EXPECT_EQ(*rows[1].find("name")->get_if<std::string>(), "load");
  for (const Json& row : rows) EXPECT_GT(*row.find("value")->get_if<double>(), 0.0);
  EXPECT_TRUE(std::filesystem::is_empty(disk.path()));
}

TEST(BenchCheckpoint, RefusesWhatItCanNotMeasure) {
  EXPECT_THAT(message_of<ConfigError>([] { (void)run_bench_checkpoint({.bytes = 1000}); }), HasSubstr("--bytes"));
  EXPECT_THAT(message_of<ConfigError>([] { (void)run_bench_checkpoint({.rounds = 0}); }), HasSubstr("round"));
  EXPECT_THAT(message_of<ConfigError>([] { (void)run_bench_checkpoint({.rows = {"copy"}}); }), HasSubstr("copy"));
}

}  // namespace
}  // namespace spillway::app::bench_checkpoint_test
