#include "system/program.hpp"

#include <algorithm>
#include <fstream>
#include <iterator>
#include <utility>

namespace spillway::test {
namespace {

// Some 320 KiB of state in ten sub-groups or so, few of which stay in memory beside three staging buffers; a bank of
// 128 KiB of which a quarter does.
constexpr const char* kConfiguration = R"({
  "seed": 3,
  "steps": 12,
  "train_batch_size": 128,
  "gradient_accumulation_steps": 2,
  "steps_per_print": 1,
  "optimizer": {"type": "AdamW", "params": {"lr": 2e-3, "weight_decay": 1e-4}},
  "zero_optimization": {"sub_group_size": 5000, "offload_optimizer": {"buffer_count": 3}},
  "contrastive": {
    "queue_size": 1024, "projection_hidden_dim": 64, "projection_dim": 64, "batch_norm_groups": 2,
    "bank": {"segment_rows": 64, "host_bytes": 212992}
  },
  "data": {"source": "digits"},
  "encoder": {"name": "small_cnn", "channels": [16, 24, 24, 24, 24, 24, 24]},
  "offload": {"host_bytes": 409600},
  "evaluation": {"draws": 1}
})";

}  // namespace

std::filesystem::path program() { return SPILLWAY_PROGRAM; }

Workplace::Workplace() : folder_("spillway-system"), swap_(folder_ / "swap") {
  std::filesystem::create_directory(swap_);
  write_text(folder_ / "config.json", kConfiguration);
}

SpawnOptions Workplace::on_disk(std::vector<std::string> more) const { return train("nvme", std::move(more)); }

SpawnOptions Workplace::in_memory(std::vector<std::string> more) const { return train("none", std::move(more)); }

SpawnOptions Workplace::train(const std::string& device, std::vector<std::string> more) const {
  SpawnOptions options;
  options.arguments = {
      "train",          "--config", folder_ / "config.json", "--out", run_folder(), "--offload-optimizer", device,
      "--offload-bank", device,     "--nvme-path",           swap()};
  options.arguments.insert(options.arguments.end(), more.begin(), more.end());
  options.environment = {{"OMP_NUM_THREADS", "1"},  // Quicker on tensors this small, and never held up by a busy core.
                         {"XDG_CACHE_HOME", folder_ / "cache"}};
  options.working_directory = folder_.path();
  return options;
}

app::Json Workplace::summary() const {
  const std::filesystem::path path = run_folder() / "summary.json";
  return app::parse_json(read_text(path), path.string());
}

SpawnOptions into(SpawnOptions run, const std::filesystem::path& out) {
  *std::next(std::ranges::find(run.arguments, "--out")) = out;
  return run;
}

std::vector<std::string> names_in(const std::filesystem::path& folder) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) names.push_back(entry.path().filename());
  return names;
}

std::string read_text(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

void write_text(const std::filesystem::path& path, const std::string& text) {
  std::ofstream(path, std::ios::binary) << text;
}

}  // namespace spillway::test
