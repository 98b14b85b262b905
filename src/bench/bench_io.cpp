#include <spillway/app/bench/bench_io.hpp>

#include <algorithm>
#include <array>
#include <cstdio>
#include <optional>
#include <utility>

#include <spillway/app/bench/bench_report.hpp>
#include <spillway/app/bench/engine_rows.hpp>
#include <spillway/app/bench/fio_peer.hpp>
#include <spillway/app/bench/log_sinks.hpp>
#include <spillway/app/bench/stream_rows.hpp>
#include <spillway/app/probe/file_system_name.hpp>
#include <spillway/app/report/summary.hpp>
#include <spillway/offload/error.hpp>
#include <spillway/offload/format_bytes.hpp>

namespace spillway::app {
namespace {

constexpr std::uint64_t kBytesUnit = std::uint64_t{64} << 20;
constexpr double kReadBar = 1.03;  // Of DeepSpeed's.
constexpr double kOverwriteBar = 1.10;

constexpr std::array<const char*, 18> kRowNames{"read",
                                                "overwrite",
                                                "mix",
                                                "read_tuned",
                                                "read_deepspeed",
                                                "read_cpu",
                                                "overwrite_tuned",
                                                "overwrite_deepspeed",
                                                "overwrite_cpu",
                                                "mix_tuned",
                                                "first_write",
                                                "fio_read",
                                                "fio_overwrite",
                                                "overlap_on",
                                                "overlap_unchecked",
                                                "overlap_off",
                                                "checksum_read",
                                                "checksum_write"};

void check(const BenchIoOptions& options) {
  if (options.bytes < kBytesUnit) {
    throw ConfigError("spillway bench io --bytes: " + offload::format_bytes(options.bytes) +
                      " is too little; at least " + offload::format_bytes(kBytesUnit) + " tell something");
  }
  if (options.rounds == 0) {
    throw ConfigError("spillway bench io: at least one round is needed");
  }
  check_row_names("io", {kRowNames.begin(), kRowNames.end()}, options.rows);
  check_report_file(options.json);
}

/// Measures what was asked for. Rows of one measurement come together.
class IoBench {
 public:
  explicit IoBench(const BenchIoOptions& options)
      : options_(options),
        bytes_(options.bytes / kBytesUnit * kBytesUnit),
        engine_({.folder = options.nvme_path,
                 .peers_folder = options.peers_folder.empty() ? default_peers_folder() : options.peers_folder,
                 .bytes = bytes_,
                 .rounds = options.rounds}),
        stream_({.folder = options.nvme_path, .bytes = bytes_, .rounds = options.rounds}) {}

  /// Blocks until all is measured; the JSON document grows meanwhile.
  const std::vector<BenchRow>& measure() {
    engine_rows();
    if (wanted({"fio_read", "fio_overwrite"}) && fio_unavailable().empty()) {
      keep(
          {engine_.noise_row("fio_read", IoDirection::kRead), engine_.noise_row("fio_overwrite", IoDirection::kWrite)});
    }
    if (wanted({"overlap_on", "overlap_unchecked", "overlap_off"})) {
      keep(stream_.overlap_rows());
    }
    for (const bool write : {false, true}) {
      const char* const name = write ? "checksum_write" : "checksum_read";
      if (wanted({name})) {
        keep({stream_.checksum_row(name, write)});
      }
    }
    return rows_;
  }

  [[nodiscard]] Json machine() const {
    Json machine = describe_machine();
    auto& members = *machine.get_if<Json::Object>();
    members.emplace_back("file_system", file_system_name(options_.nvme_path));
    members.emplace_back("bytes", bytes_);
    members.emplace_back("rounds", std::uint64_t{options_.rounds});
    const Json::Object facts = engine_.facts();
    members.insert(members.end(), facts.begin(), facts.end());
    return machine;
  }
  [[nodiscard]] std::string heading() const {
    return "Disk under " + options_.nvme_path + " (" + file_system_name(options_.nvme_path) +
           "): " + offload::format_bytes(bytes_) + ", " + std::to_string(options_.rounds) + " rounds; " +
           engine_.engine_line() + ".\n";
  }

 private:
  [[nodiscard]] bool wanted(const std::vector<std::string>& names) const {
    return options_.rows.empty() || std::any_of(names.begin(), names.end(), [this](const std::string& name) {
             return std::find(options_.rows.begin(), options_.rows.end(), name) != options_.rows.end();
           });
  }
  // What was measured is told and written at once: the rest takes minutes more.
  void keep(std::vector<BenchRow> rows) {
    for (BenchRow& row : rows) {
      if (wanted({row.head.name})) {
        say_on_stderr(row.head.name + " is measured");
        rows_.push_back(std::move(row));
      }
    }
    if (!options_.json.empty()) {
      write_json_file(options_.json, bench_json("io", machine(), rows_));
    }
  }
  void engine_rows() {
    struct Kind {
      const char* name;
      IoDirection direction;
      std::optional<double> peer_bar;
    };
    const std::array<Kind, 3> kinds{{{"read", IoDirection::kRead, kReadBar},
                                     {"overwrite", IoDirection::kWrite, kOverwriteBar},
                                     {"mix", IoDirection::kMix, std::nullopt}}};
    for (const auto& [name, direction, peer_bar] : kinds) {
      if (wanted({name})) {
        keep({engine_.row(name, direction)});
      }
    }
    for (const auto& [text, direction, peer_bar] : kinds) {
      const std::string name = text;
      if (wanted({name + "_tuned", name + "_deepspeed", name + "_cpu"})) {
        keep(engine_.tuned_rows(name, direction, peer_bar));
      }
    }
    if (wanted({"first_write"})) {
      keep({engine_.first_write_row()});
    }
  }

  const BenchIoOptions options_;
  const std::uint64_t bytes_;
  EngineRows engine_;
  StreamRows stream_;
  std::vector<BenchRow> rows_;
};

}  // namespace

int run_bench_io(const BenchIoOptions& options) {
  check(options);
  IoBench bench(options);
  const std::vector<BenchRow>& rows = bench.measure();
  std::printf("%s%s", bench.heading().c_str(), bench_table(rows).c_str());
  return 0;
}

}  // namespace spillway::app
