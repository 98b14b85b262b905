#include <spillway/app/report/metrics.hpp>

#include <cmath>
#include <fstream>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <spillway/app/config/json.hpp>
#include <spillway/offload/error.hpp>
#include <support/temp_dir.hpp>

#include "support/errors.hpp"

namespace spillway::app::metrics_test {
namespace {

using ::testing::ElementsAre;

std::vector<std::string> lines_of(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::vector<std::string> lines;
  for (std::string line; std::getline(file, line);) {
    lines.push_back(line);
  }
  return lines;
}

TEST(Metrics, HaveTheDocumentedFieldsInOrder) {
  const test::TempDir folder;
  MetricsWriter writer(folder / "metrics.jsonl");
  writer.write({.step = 1, .loss = 2.5});
  const Json line = parse_json(lines_of(folder / "metrics.jsonl").at(0), "line");
  std::vector<std::string> names;
  for (const auto& [name, value] : *line.get_if<Json::Object>()) {
    names.push_back(name);
  }
  EXPECT_THAT(names,
              ElementsAre("step", "epoch", "loss", "lr", "grad_norm", "loss_scale", "skipped", "step_s", "stall_s",
                          "samples_per_s", "read_bytes", "write_bytes", "device_bytes", "host_bytes", "disk_bytes"));
  EXPECT_EQ(*line.find("loss"), Json(2.5));
  EXPECT_EQ(*line.find("skipped"), Json(false));
}

TEST(Metrics, HaveAnAccuracyWhereThereIsOne) {
  const test::TempDir folder;
  MetricsWriter writer(folder / "metrics.jsonl");
  writer.write({.step = 1, .accuracy = EncoderAccuracy{.few_label = 80.5, .knn = 90.5}});
  writer.write({.step = 2});
  const std::vector<std::string> lines = lines_of(folder / "metrics.jsonl");
  EXPECT_EQ(parse_json(lines.at(0), "line").find("accuracy")->dump(), R"({"few_label":80.5,"knn":90.5})");
  EXPECT_EQ(parse_json(lines.at(1), "line").find("accuracy"), nullptr);
}

TEST(Metrics, AreInTheFileAsSoonAsTheyAreWritten) {
  const test::TempDir folder;
  MetricsWriter writer(folder / "metrics.jsonl");
  for (std::uint64_t step = 1; step <= 3; ++step) {
    writer.write({.step = step});
    EXPECT_EQ(lines_of(folder / "metrics.jsonl").size(), step);
  }
}

TEST(Metrics, WriteALossThatIsNotFiniteAsNull) {
  const test::TempDir folder;
  MetricsWriter writer(folder / "metrics.jsonl");
  writer.write({.loss = std::nan("")});
  EXPECT_TRUE(parse_json(lines_of(folder / "metrics.jsonl").at(0), "line").find("loss")->is_null());
}

TEST(Metrics, NameAFileThatCannotBeOpened) {
  const test::TempDir folder;
  EXPECT_THAT(message_of<IoError>([&] { MetricsWriter writer(folder / "no" / "metrics.jsonl"); }),
              ::testing::HasSubstr((folder / "no").string()));
}

TEST(Metrics, ReportADiskThatIsFull) {
  MetricsWriter writer("/dev/full");
  EXPECT_THROW(writer.write({}), IoError);
}

}  // namespace
}  // namespace spillway::app::metrics_test
