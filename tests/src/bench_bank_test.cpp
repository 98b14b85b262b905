#include <spillway/app/bench/bench_bank.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include <ATen/ops/empty.h>

#include <spillway/app/bench/loss_sides.hpp>
#include <spillway/app/bench/streamed_bank.hpp>
#include <spillway/app/bench/streamed_bank_rows.hpp>
#include <spillway/app/bench/tensor_memory.hpp>
#include <spillway/app/config/json.hpp>
#include <spillway/offload/error.hpp>

#include "support/errors.hpp"
#include "support/temp_dir.hpp"

namespace spillway::app::bench_bank_test {
namespace {

using ::testing::HasSubstr;

constexpr std::uint64_t kBytes = StreamedBank::kBytesUnit;

Json document_of(const BenchBankOptions& options) {
  EXPECT_EQ(run_bench_bank(options), 0);
  std::ifstream file(options.json);
  return parse_json(std::string(std::istreambuf_iterator<char>(file), {}), "bank.json");
}

TEST(BenchBank, WritesItsRows) {
  const test::TempDir folder;
  const Json document = document_of({.nvme_path = folder.path().string(),
                                     .json = (folder / "bank.json").string(),
                                     .capacity = 1'024,
                                     .bytes = kBytes,
                                     .rounds = 2});
  EXPECT_EQ(*document.find("bench")->get_if<std::string>(), "bank");
  const Json::Array& rows = *document.find("rows")->get_if<Json::Array>();
  const std::vector<std::string> names{"memory_128",       "memory_128_memory",  "memory_128_fp16", "memory_2048",
                                       "memory_2048_peer", "memory_2048_memory", "disk_1",          "disk_1_stall",
                                       "disk_8",           "disk_8_stall",       "disk_256",        "disk_256_stall"};
  ASSERT_EQ(rows.size(), names.size());
  for (std::size_t i = 0; i < names.size(); ++i) {
    SCOPED_TRACE(names[i]);
    const bool stall = names[i].ends_with("_stall");
    const bool of_time = names[i].starts_with("memory") && !names[i].ends_with("_memory");
    EXPECT_EQ(*rows[i].find("name")->get_if<std::string>(), names[i]);
    EXPECT_GE(*rows[i].find("value")->get_if<double>(), 0.0);
    EXPECT_EQ(rows[i].find("bar")->is_null(), stall || names[i] == "memory_128_fp16");
    EXPECT_EQ(rows[i].find("ratio_to_peer")->is_null(), !names[i].starts_with("memory"));
    EXPECT_EQ(rows[i].find("ratio_to_bound")->is_null(), stall || !(of_time || names[i].starts_with("disk")));
  }
}

TEST(BenchBank, MeasuresWhatIsAskedFor) {
  const test::TempDir folder;
  const Json document = document_of({.nvme_path = folder.path().string(),
                                     .json = (folder / "bank.json").string(),
                                     .capacity = 512,
                                     .bytes = kBytes,
                                     .rounds = 1,
                                     .rows = {"memory_128", "disk_8_stall"}});
  EXPECT_EQ(document.find("rows")->get_if<Json::Array>()->size(), 2U);
}

TEST(BenchBank, SaysWhichRowsTheDiskIsTooSmallFor) {
  const test::TempDir folder;
  const std::uint64_t too_much = std::uint64_t{1} << 50;
  std::vector<BenchRow> rows;
  measure_streamed_bank(
      {.folder = folder.path().string(), .bytes = too_much, .rounds = 1},
      [](const std::string& name) { return name == "disk_1"; },
      [&](std::vector<BenchRow> some) { rows = std::move(some); });
  ASSERT_EQ(rows.size(), 2U);
  EXPECT_THAT(rows[0].why_absent, HasSubstr("it takes "));
  const Json document = bench_json("bank", Json::Object{}, rows);
  const Json& row = document.find("rows")->get_if<Json::Array>()->front();
  EXPECT_TRUE(row.find("value")->is_null());
  EXPECT_TRUE(row.find("met")->is_null());
  EXPECT_THAT(*row.find("why")->get_if<std::string>(), HasSubstr("it takes "));
  EXPECT_THAT(bench_table(rows), HasSubstr("disk_1 was not measured"));
}

TEST(BenchBank, ItsBankOnDiskIsReadForEachLoss) {
  const test::TempDir folder;
  const StreamedBank streamed(folder.path().string(), kBytes);
  EXPECT_GE(streamed.read_bytes_per_scan(), kBytes - StreamedBank::host_bytes(kBytes));
  const StreamedBank resident("", kBytes);
  EXPECT_EQ(resident.read_bytes_per_scan(), 0U);
}

TEST(BenchBank, NoticesSidesThatComputeDifferentThings) {
  const at::Tensor keys = bench_unit_rows(512, 16, 1);
  const at::Tensor k = bench_unit_rows(4, 16, 2);
  const at::Tensor q = bench_unit_rows(4, 16, 3);
  const auto bank = resident_bank(keys, at::kFloat);
  const LossAndGradient ours = streamed_loss(q, k, *bank);
  EXPECT_NO_THROW(compare_losses("row", ours, table_loss(q, k, keys), 1e-4));
  EXPECT_THAT(message_of<Error>([&] { compare_losses("row", ours, table_loss(q, k, keys.narrow(0, 0, 511)), 1e-4); }),
              HasSubstr("row"));
}

TEST(BenchBank, CountsTheMemoryOfTensorsAtItsPeak) {
  constexpr std::uint64_t kMebibyte = std::uint64_t{1} << 20;
  const std::uint64_t peak = peak_tensor_bytes([] {
    for (int i = 0; i < 3; ++i) {
      const at::Tensor first = at::empty({1 << 20}, at::TensorOptions(at::kByte));
      const at::Tensor second = at::empty({1 << 20}, at::TensorOptions(at::kByte));
    }
  });
  EXPECT_GE(peak, 2 * kMebibyte);
  EXPECT_LT(peak, 2 * kMebibyte + 4'096);
}

TEST(BenchBank, RefusesWhatTellsNothing) {
  EXPECT_THAT(message_of<ConfigError>([] { run_bench_bank({.capacity = 10}); }), HasSubstr("--capacity"));
  EXPECT_THAT(message_of<ConfigError>([] { run_bench_bank({.bytes = 1'000}); }), HasSubstr("--bytes"));
  EXPECT_THAT(message_of<ConfigError>([] { run_bench_bank({.rounds = 0}); }), HasSubstr("round"));
  EXPECT_THAT(message_of<ConfigError>([] { run_bench_bank({.rows = {"disk"}}); }), HasSubstr("disk_256"));
  EXPECT_THROW(run_bench_bank({.json = "/no/such/folder/b.json"}), IoError);
}

}  // namespace
}  // namespace spillway::app::bench_bank_test
