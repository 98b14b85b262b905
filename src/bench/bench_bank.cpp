#include <spillway/app/bench/bench_bank.hpp>

#include <algorithm>
#include <cstdio>
#include <utility>

#include <ATen/Parallel.h>

#include <spillway/app/bench/bench_report.hpp>
#include <spillway/app/bench/log_sinks.hpp>
#include <spillway/app/bench/loss_rows.hpp>
#include <spillway/app/bench/streamed_bank.hpp>
#include <spillway/app/bench/streamed_bank_rows.hpp>
#include <spillway/app/probe/file_system_name.hpp>
#include <spillway/app/report/summary.hpp>
#include <spillway/offload/error.hpp>
#include <spillway/offload/format_bytes.hpp>

namespace spillway::app {
namespace {

constexpr std::uint64_t kCapacityLeast = 512;

std::vector<LossCase> loss_cases(std::uint64_t capacity) {
  const auto keys = static_cast<std::int64_t>(capacity);
  return {{.name = "memory_128", .keys = keys, .dim = 128, .peer_bar = 1.5, .has_memory = true},
          {.name = "memory_128_fp16", .keys = keys, .dim = 128, .dtype = at::kHalf},
          {.name = "memory_2048", .keys = keys, .dim = 2048, .bound_bar = 0.9, .peer_bar = 1.0, .has_memory = true}};
}

std::vector<std::string> bank_row_names(std::uint64_t capacity) {
  std::vector<std::string> names;
  for (const LossCase& about : loss_cases(capacity)) {
    const std::vector<std::string> more = loss_row_names(about);
    names.insert(names.end(), more.begin(), more.end());
  }
  const std::vector<std::string> more = streamed_bank_row_names();
  names.insert(names.end(), more.begin(), more.end());
  return names;
}

void check(const BenchBankOptions& options) {
  if (options.capacity < kCapacityLeast) {
    throw ConfigError("spillway bench bank --capacity: " + std::to_string(options.capacity) +
                      " keys are too few; at least " + std::to_string(kCapacityLeast) + " tell something");
  }
  if (options.bytes == 0 || options.bytes % StreamedBank::kBytesUnit != 0) {
    throw ConfigError("spillway bench bank --bytes: wanted a multiple of " +
                      offload::format_bytes(StreamedBank::kBytesUnit) + ", not " +
                      offload::format_bytes(options.bytes));
  }
  if (options.rounds == 0) {
    throw ConfigError("spillway bench bank: at least one round is needed");
  }
  check_row_names("bank", bank_row_names(options.capacity), options.rows);
  check_report_file(options.json);
}

/// Measures what was asked for; the JSON document grows meanwhile.
class BankBench {
 public:
  explicit BankBench(const BenchBankOptions& options) : options_(options) {}

  const std::vector<BenchRow>& measure() {
    for (const LossCase& about : loss_cases(options_.capacity)) {
      const std::vector<std::string> names = loss_row_names(about);
      if (std::any_of(names.begin(), names.end(), [this](const std::string& name) { return wanted(name); })) {
        keep(loss_rows(about, options_.rounds));
      }
    }
    measure_streamed_bank(
        {.folder = options_.nvme_path, .bytes = options_.bytes, .rounds = options_.rounds},
        [this](const std::string& name) { return wanted(name); },
        [this](std::vector<BenchRow> rows) { keep(std::move(rows)); });
    return rows_;
  }

 private:
  [[nodiscard]] bool wanted(const std::string& name) const {
    return options_.rows.empty() || std::find(options_.rows.begin(), options_.rows.end(), name) != options_.rows.end();
  }
  void keep(std::vector<BenchRow> rows) {
    for (BenchRow& row : rows) {
      if (wanted(row.head.name)) {
        say_on_stderr(row.head.name + (row.why_absent.empty() ? " is measured" : " is left out: " + row.why_absent));
        rows_.push_back(std::move(row));
      }
    }
    if (!options_.json.empty()) {
      write_json_file(options_.json, bench_json("bank", machine(), rows_));
    }
  }
  [[nodiscard]] Json machine() const {
    Json machine = describe_machine();
    auto& members = *machine.get_if<Json::Object>();
    members.emplace_back("file_system", file_system_name(options_.nvme_path));
    members.emplace_back("threads", static_cast<std::uint64_t>(at::get_num_threads()));
    members.emplace_back("capacity", options_.capacity);
    members.emplace_back("bytes", options_.bytes);
    members.emplace_back("host_budget_bytes", StreamedBank::host_bytes(options_.bytes));
    members.emplace_back("rounds", std::uint64_t{options_.rounds});
    return machine;
  }

  const BenchBankOptions options_;
  std::vector<BenchRow> rows_;
};

}  // namespace

int run_bench_bank(const BenchBankOptions& options) {
  check(options);
  BankBench bench(options);
  const std::vector<BenchRow>& rows = bench.measure();
  std::printf("InfoNCE over %llu keys in memory, 256 queries, and over %s on the disk under %s; %u rounds.\n%s",
              static_cast<unsigned long long>(options.capacity), offload::format_bytes(options.bytes).c_str(),
              options.nvme_path.c_str(), options.rounds, bench_table(rows).c_str());
  return 0;
}

}  // namespace spillway::app
