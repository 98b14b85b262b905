#include <spillway/app/bench/bench_checkpoint.hpp>

#include <fcntl.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <utility>

#include <spillway/app/bench/bare_loop.hpp>
#include <spillway/app/bench/bench_report.hpp>
#include <spillway/app/bench/cost_clock.hpp>
#include <spillway/app/bench/scratch_folder.hpp>
#include <spillway/app/bench/turns.hpp>
#include <spillway/app/bench/uring_loop.hpp>
#include <spillway/app/checkpoint/checkpoint_folder.hpp>
#include <spillway/app/checkpoint/tensor_header.hpp>
#include <spillway/app/probe/file_system_name.hpp>
#include <spillway/app/report/summary.hpp>
#include <spillway/offload/error.hpp>
#include <spillway/offload/unique_fd.hpp>

namespace spillway::app {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kCheckpointTensors = 64;
constexpr std::uint64_t kLeastBytes = std::uint64_t{64} << 20;
constexpr double kCheckpointBar = 0.9;
constexpr const char* kFile = "rank_0.safetensors";
const std::vector<std::string> kCheckpointRows = {"save", "load"};

/// A checkpoint of tensors that all have the same values, in a folder of its own that goes when this dies.
class CheckpointSide {
 public:
  CheckpointSide(const fs::path& folder, std::uint64_t bytes)
      : scratch_(folder), root_(scratch_.path()), values_(bytes / kCheckpointTensors, std::byte{0x5a}) {
    for (std::uint64_t tensor = 0; tensor < kCheckpointTensors; ++tensor) {
      tensors_.push_back({.name = "tensor." + std::to_string(tensor),
                          .dtype = "U8",
                          .sizes = {static_cast<std::int64_t>(values_.size())}});
    }
  }

  /// Bytes a second until it is on the disk under its name; the one before is removed first.
  double save() {
    fs::remove_all(root_ / "checkpoints");
    const CostClock clock;
    CheckpointWriter writer(root_ / "checkpoints", 1);
    DurableFile file(writer.folder() / kFile);
    file.write(tensor_header_text(tensors_, kFile));
    file.end_part("the header");
    for (const StoredTensor& tensor : tensors_) {
      file.write(values_);
      file.end_part(tensor.name);
    }
    Manifest manifest;
    manifest.step = 1;
    manifest.files = {{kFile, file.finish()}};
    manifest.config = Json::Object{};
    manifest.progress = Json::Object{};
    writer.commit(manifest);
    return static_cast<double>(values_.size() * kCheckpointTensors) / clock.elapsed().seconds;
  }

  /// Bytes a second of a verification and a load, from the disk.
  double load() {
    const fs::path folder = root_ / "checkpoints/step_0000000001";
    const auto opened = offload::UniqueFd::adopt(::open((folder / kFile).c_str(), O_RDONLY | O_CLOEXEC));
    static_cast<void>(::posix_fadvise(opened.get(), 0, 0, POSIX_FADV_DONTNEED));  // Advice: the rate tells.
    const CostClock clock;
    static_cast<void>(verify_checkpoint(folder));
    const InputFile file(folder / kFile);
    const TensorHeader header = read_tensor_header(file);
    for (const StoredTensor& tensor : header.tensors) file.read(values_, header.data_start + tensor.begin);
    return static_cast<double>(values_.size() * kCheckpointTensors) / clock.elapsed().seconds;
  }

 private:
  ScratchFolder scratch_;
  const fs::path& root_;
  std::vector<std::byte> values_;
  std::vector<StoredTensor> tensors_;
};

void check(const BenchCheckpointOptions& options) {
  if (options.bytes < kLeastBytes) {
    throw ConfigError("spillway bench checkpoint --bytes: at least 64 MiB, not " + std::to_string(options.bytes));
  }
  if (options.rounds == 0) throw ConfigError("spillway bench checkpoint: at least one round is needed");
  check_row_names("checkpoint", kCheckpointRows, options.rows);
  check_report_file(options.json);
}

BenchRow measure_row(const std::string& row, CheckpointSide& side, const BenchCheckpointOptions& options) {
  const bool saves = row == "save";
  const std::string why_no_loop = uring_loop_unavailable();
  std::optional<BareLoop> loop;
  if (why_no_loop.empty()) loop.emplace(options.path, options.bytes, saves ? IoDirection::kWrite : IoDirection::kRead);
  std::vector<BenchRound> rounds(options.rounds);
  std::vector<std::function<void(std::size_t)>> sides{
      [&](std::size_t round) { rounds[round].value = (saves ? side.save() : side.load()) / 1e9; }};
  if (loop) {
    sides.emplace_back([&](std::size_t round) { rounds[round].bound = loop->rate() / 1e9; });
  }
  by_turns(options.rounds, sides);
  return make_bench_row({.name = row,
                         .unit = "GB/s",
                         .bound = {.name = "a bare io_uring loop", .why_absent = why_no_loop},
                         .bar = BenchBar{.ratio = kCheckpointBar}},
                        rounds);
}

}  // namespace

int run_bench_checkpoint(const BenchCheckpointOptions& options) {
  check(options);
  CheckpointSide side(options.path, options.bytes);
  static_cast<void>(side.save());
  std::vector<BenchRow> rows;
  for (const std::string& row : kCheckpointRows) {
    if (!options.rows.empty() && std::ranges::find(options.rows, row) == options.rows.end()) continue;
    rows.push_back(measure_row(row, side, options));
  }
  Json machine = describe_machine();
  machine.get_if<Json::Object>()->emplace_back("file_system", file_system_name(options.path));
  machine.get_if<Json::Object>()->emplace_back("bytes", options.bytes);
  if (!options.json.empty()) write_json_file(options.json, bench_json("checkpoint", std::move(machine), rows));
  std::printf("Checkpoints of %llu bytes under %s, %u rounds.\n%s", static_cast<unsigned long long>(options.bytes),
              options.path.c_str(), options.rounds, bench_table(rows).c_str());
  return 0;
}

}  // namespace spillway::app
