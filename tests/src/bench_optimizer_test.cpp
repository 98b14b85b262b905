#include <spillway/app/bench/bench_optimizer.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include <spillway/app/config/json.hpp>
#include <spillway/offload/error.hpp>

#include "support/errors.hpp"
#include "support/temp_dir.hpp"

namespace spillway::app::bench_optimizer_test {
namespace {

constexpr std::uint64_t kNumel = std::uint64_t{1} << 18;

TEST(BenchOptimizer, WritesItsRows) {
  const test::TempDir folder;
  const std::string json = (folder / "optimizer.json").string();
  EXPECT_EQ(run_bench_optimizer({.json = json, .numel = kNumel, .rounds = 2, .peers_folder = folder / "none"}), 0);
  std::ifstream file(json);
  const Json document = parse_json(std::string(std::istreambuf_iterator<char>(file), {}), "optimizer.json");
  EXPECT_EQ(*document.find("bench")->get_if<std::string>(), "optimizer");
  const Json::Array& rows = *document.find("rows")->get_if<Json::Array>();
  const std::vector<std::string> names{"fp32_flat",       "fp32_flat_peer", "fp32_1024_tensors", "fp32_16384_tensors",
                                       "bf16_fp32_state", "all_bf16",       "whole_step"};
  ASSERT_EQ(rows.size(), names.size());
  for (std::size_t i = 0; i < names.size(); ++i) {
    SCOPED_TRACE(names[i]);
    EXPECT_EQ(*rows[i].find("name")->get_if<std::string>(), names[i]);
    EXPECT_GT(*rows[i].find("value")->get_if<double>(), 0.0);
    EXPECT_GT(*rows[i].find("ratio_to_bound")->get_if<double>(), 0.0);
    const bool has_peer = names[i] != "bf16_fp32_state";
    EXPECT_EQ(rows[i].find("ratio_to_peer")->is_null(), !has_peer);
    EXPECT_EQ(rows[i].find("met")->is_null(), !has_peer);
  }
  EXPECT_NE(document.find("machine")->find("instruction_set"), nullptr);
}

TEST(BenchOptimizer, MeasuresWhatIsAskedFor) {
  const test::TempDir folder;
  const std::string json = (folder / "optimizer.json").string();
  run_bench_optimizer(
      {.json = json, .numel = kNumel, .rounds = 1, .rows = {"all_bf16"}, .peers_folder = folder / "none"});
  std::ifstream file(json);
  const Json document = parse_json(std::string(std::istreambuf_iterator<char>(file), {}), "optimizer.json");
  EXPECT_EQ(document.find("rows")->get_if<Json::Array>()->size(), 1U);
}

TEST(BenchOptimizer, RefusesWhatTellsNothing) {
  using ::testing::HasSubstr;
  EXPECT_THAT(message_of<ConfigError>([] { run_bench_optimizer({.numel = 1000}); }), HasSubstr("--numel"));
  EXPECT_THAT(message_of<ConfigError>([] { run_bench_optimizer({.numel = kNumel, .rounds = 0}); }), HasSubstr("round"));
  EXPECT_THAT(message_of<ConfigError>([] { run_bench_optimizer({.numel = kNumel, .rows = {"flat"}}); }),
              HasSubstr("fp32_flat"));
  EXPECT_THROW(run_bench_optimizer({.json = "/no/such/folder/o.json", .numel = kNumel}), IoError);
}

}  // namespace
}  // namespace spillway::app::bench_optimizer_test
