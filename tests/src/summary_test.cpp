#include <spillway/app/report/summary.hpp>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <spillway/offload/error.hpp>
#include <support/temp_dir.hpp>

#include "support/errors.hpp"

namespace spillway::app::summary_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

const Summary kSummary{.steps = 4,
                       .loss_first = 7.5,
                       .loss_last = 2.25,
                       .accuracy = {.raw = 72.5, .untrained = 70.0, .trained = 87.5},
                       .knn_accuracy = {.raw = 60.5, .untrained = 61.5, .trained = 90.5},
                       .seconds = 12.5,
                       .stall_share = 0.125,
                       .data_stall_share = 0.0625,
                       .read_bytes = 4 * 4096,
                       .write_bytes = 4 * 8192,
                       .device = {.budget_bytes = 1, .peak_bytes = 2},
                       .host = {.budget_bytes = 3072, .peak_bytes = 2048},
                       .disk = {.budget_bytes = 5, .peak_bytes = 6},
                       .weights_xxh3 = "00000000000000ff"};

std::string content(const std::filesystem::path& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::vector<std::string> names(const Json& json) {
  std::vector<std::string> list;
  for (const auto& [name, value] : *json.get_if<Json::Object>()) {
    list.push_back(name);
  }
  return list;
}

TEST(Summary, HasTheDocumentedFields) {
  const Json json = to_json(kSummary);
  EXPECT_THAT(names(json), ElementsAre("steps", "skipped_steps", "loss_first", "loss_last", "accuracy", "seconds",
                                       "stall_share", "data_stall_share", "read_bytes", "write_bytes",
                                       "predicted_read_bytes", "predicted_write_bytes", "steps_off_prediction", "tiers",
                                       "peak_rss_bytes", "threads", "weights_xxh3"));
  EXPECT_THAT(names(*json.find("accuracy")), ElementsAre("raw", "untrained", "trained", "knn"));
  EXPECT_EQ(json.find("accuracy")->find("knn")->dump(), R"({"raw":60.5,"untrained":61.5,"trained":90.5})");
  EXPECT_THAT(names(*json.find("tiers")), ElementsAre("device", "host", "disk"));
  EXPECT_EQ(json.find("tiers")->find("host")->dump(), R"({"budget_bytes":3072,"peak_bytes":2048})");
  EXPECT_EQ(*json.find("accuracy")->find("trained"), Json(87.5));
  EXPECT_EQ(*json.find("weights_xxh3"), Json("00000000000000ff"));
}

TEST(Summary, TellsAPersonBytesPerStepAndPeaksAgainstBudgets) {
  const std::string text = describe(kSummary);
  for (const char* part : {"4 steps in 12.5 s, 12.5 % of the step time stalled", "loss 7.5000 at first, 2.2500 at last",
                           "few-label accuracy: raw pixels 72.5 %, untrained encoder 70.0 %, trained encoder 87.5 %",
                           "kNN accuracy: raw pixels 60.5 %, untrained encoder 61.5 %, trained encoder 90.5 %",
                           "read 4 KiB, written 8 KiB", "host   peak 2 KiB of 3 KiB", "00000000000000ff"}) {
    EXPECT_THAT(text, HasSubstr(part));
  }
}

TEST(JsonFile, ReplacesWhatWasThereAndLeavesNothingElse) {
  const test::TempDir folder;
  write_json_file(folder / "summary.json", Json(std::uint64_t{1}));
  write_json_file(folder / "summary.json", Json(std::uint64_t{2}));
  EXPECT_EQ(content(folder / "summary.json"), "2\n");
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder.path()), {}), 1);
}

TEST(JsonFile, LeavesTheOldFileWhereTheNewOneCannotBeWritten) {
  const test::TempDir folder;
  // A folder stands where the new content would be put together.
  write_json_file(folder / "summary.json", Json(std::uint64_t{1}));
  std::filesystem::create_directory(folder / "summary.json.partial");
  EXPECT_THAT(message_of<IoError>([&] { write_json_file(folder / "summary.json", Json(std::uint64_t{2})); }),
              HasSubstr("summary.json.partial"));
  EXPECT_EQ(content(folder / "summary.json"), "1\n");
}

TEST(JsonFile, RemovesItsPartWhereItCannotTakeTheName) {
  const test::TempDir folder;
  std::filesystem::create_directory(folder / "summary.json");
  EXPECT_THROW(write_json_file(folder / "summary.json", Json()), IoError);
  EXPECT_FALSE(std::filesystem::exists(folder / "summary.json.partial"));
}

}  // namespace
}  // namespace spillway::app::summary_test
