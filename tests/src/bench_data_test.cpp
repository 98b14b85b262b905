#include <spillway/app/bench/bench_data.hpp>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <spillway/app/bench/photo_files.hpp>
#include <spillway/app/config/json.hpp>
#include <spillway/app/data/jpeg_file.hpp>
#include <spillway/offload/error.hpp>

#include "support/errors.hpp"
#include "support/temp_dir.hpp"

namespace spillway::app::bench_data_test {
namespace {

using ::testing::HasSubstr;

BenchDataOptions small(const test::TempDir& folder) {
  return {.json = (folder / "data.json").string(),
          .peers_folder = folder / "none",
          .images = 3,
          .batch = 4,
          .batches = 1,
          .rounds = 2};
}

TEST(BenchData, WritesItsRow) {
  const test::TempDir folder;
  EXPECT_EQ(run_bench_data(small(folder)), 0);
  std::ifstream file(folder / "data.json");
  const Json document = parse_json(std::string(std::istreambuf_iterator<char>(file), {}), "data.json");
  EXPECT_EQ(*document.find("bench")->get_if<std::string>(), "data");
  const Json::Array& rows = *document.find("rows")->get_if<Json::Array>();
  ASSERT_EQ(rows.size(), 1U);
  EXPECT_EQ(*rows[0].find("name")->get_if<std::string>(), "simclr_224");
  EXPECT_GT(*rows[0].find("value")->get_if<double>(), 0.0);
  EXPECT_GT(*rows[0].find("bound")->get_if<double>(), 0.0);
  EXPECT_TRUE(rows[0].find("ratio_to_peer")->is_null());
  EXPECT_TRUE(rows[0].find("met")->is_null());
}

TEST(BenchData, MeasuresFilesOfTheUsersOwnAndLeavesThem) {
  const test::TempDir folder;
  write_photos(folder / "photos", 2);
  BenchDataOptions options = small(folder);
  options.data = (folder / "photos").string();
  EXPECT_EQ(run_bench_data(options), 0);
  EXPECT_TRUE(std::filesystem::exists(folder / "photos" / "class" / "1.jpg"));
}

TEST(BenchData, RefusesWhatTellsNothing) {
  const test::TempDir folder;
  BenchDataOptions options = small(folder);
  options.batch = 0;
  EXPECT_THAT(message_of<ConfigError>([&] { run_bench_data(options); }), HasSubstr("batch"));
  options = small(folder);
  options.rows = {"io"};
  EXPECT_THAT(message_of<ConfigError>([&] { run_bench_data(options); }), HasSubstr("simclr_224"));
}

TEST(PhotoFiles, CompressAsPhotographsDo) {
  const Image photo = make_photo(500, 375, 0);
  EXPECT_EQ(photo, make_photo(500, 375, 0));
  EXPECT_NE(photo, make_photo(500, 375, 1));
  const double bits = 8.0 * static_cast<double>(encode_jpeg(photo, 90).size()) / (500.0 * 375.0);
  EXPECT_GT(bits, 1.0);
  EXPECT_LT(bits, 6.0);
}

}  // namespace
}  // namespace spillway::app::bench_data_test
