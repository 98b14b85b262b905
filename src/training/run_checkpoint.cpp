#include <spillway/app/training/run_checkpoint.hpp>

#include <algorithm>
#include <array>
#include <functional>
#include <memory>
#include <span>
#include <string_view>
#include <utility>

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/tensor.h>
#include <torch/serialize/archive.h>

#include <spillway/app/checkpoint/durable_file.hpp>
#include <spillway/app/checkpoint/tensor_file.hpp>
#include <spillway/app/config/load_config.hpp>
#include <spillway/offload/error.hpp>
#include <spillway/optimizer/saved_pieces.hpp>

namespace spillway::app {
namespace {

// Of rank 0: what ranks have in common is in its files.
constexpr const char* kTensors = "rank_0.safetensors";
constexpr const char* kOptimizer = "optimizer.";  // Before the names of its state.
constexpr const char* kGenerator = "generator.cpu";
constexpr const char* kLossScale = "loss_scale";  // MixedPrecision::state().
constexpr const char* kBankValues = "bank.values";
constexpr const char* kBankScales = "bank.scales";
constexpr const char* kBankLabels = "bank.labels";
constexpr const char* kBankCounts = "bank.counts";  // Capacity, position, accepted rows, rejected rows.
constexpr std::int64_t kBankPieceRows = 4096;

std::string tensors_of(std::uint64_t rank) { return "rank_" + std::to_string(rank) + ".safetensors"; }
std::string counters_of(std::uint64_t rank) { return "rank_" + std::to_string(rank) + ".optimizer.pt"; }  // LibTorch's.

/// Which rank's files have the optimizer of this one.
std::uint64_t optimizer_rank(const RankPlace& place, bool sharded) { return sharded ? place.rank : 0; }

TensorEntry entry_of(std::string name, const at::Tensor& tensor) {
  return {std::move(name), tensor.scalar_type(), tensor.sizes().vec()};
}

at::Tensor counts_of(const queue::NegativeBank& bank) {
  const queue::BankCounts counts = bank.counts();
  return at::tensor({bank.capacity(), bank.position(), static_cast<std::int64_t>(counts.accepted_rows),
                     static_cast<std::int64_t>(counts.rejected_rows)},
                    at::TensorOptions(at::kLong));
}

std::vector<TensorEntry> bank_entries(const queue::NegativeBank& bank) {
  const std::int64_t rows = bank.size();
  std::vector<TensorEntry> entries{{kBankValues, bank.dtype(), {rows, bank.dim()}}};
  if (bank.dtype() == at::kChar) entries.push_back({kBankScales, at::kFloat, {rows}});
  if (bank.has_labels()) entries.push_back({kBankLabels, at::kLong, {rows}});
  entries.push_back({kBankCounts, at::kLong, {4}});
  return entries;
}

/// What lies beside the values is little, and waits in memory until they are all written.
void append_bank(queue::NegativeBank& bank, TensorFileWriter& writer) {
  std::vector<at::Tensor> scales;
  std::vector<at::Tensor> labels;
  bank.scan_stored([&](const queue::StoredRows& rows) {
    writer.append(rows.values);
    if (rows.scales.defined()) scales.push_back(rows.scales.clone());
    if (rows.labels.defined()) labels.push_back(rows.labels.clone());
  });
  for (const at::Tensor& piece : scales) writer.append(piece);
  for (const at::Tensor& piece : labels) writer.append(piece);
  writer.append(counts_of(bank));
}

CheckpointFile write_tensors(const std::filesystem::path& folder, RunParts& parts, const RankPlace& place,
                             bool with_optimizer) {
  const at::Generator generator = at::detail::getDefaultCPUGenerator();
  const at::Tensor generator_state = generator.get_state();
  std::vector<TensorEntry> entries;
  const std::vector<NamedTensor> state = parts.method().state();
  for (const NamedTensor& tensor : state) entries.push_back(entry_of(tensor.name, tensor.tensor));
  entries.push_back(entry_of(kGenerator, generator_state));
  const at::Tensor loss_scale = parts.step().precision().state();
  if (loss_scale.defined()) entries.push_back(entry_of(kLossScale, loss_scale));
  if (with_optimizer) {
    parts.optimizer().list_state([&](const std::string& name, const at::Tensor& tensor) {
      entries.push_back(entry_of(kOptimizer + name, tensor));
    });
  }
  queue::NegativeBank* const bank = place.rank == 0 ? parts.method().bank() : nullptr;
  if (bank != nullptr) std::ranges::copy(bank_entries(*bank), std::back_inserter(entries));

  TensorFileWriter writer(folder / tensors_of(place.rank), std::move(entries));
  for (const NamedTensor& tensor : state) writer.append(tensor.tensor);
  writer.append(generator_state);
  if (loss_scale.defined()) writer.append(loss_scale);
  if (with_optimizer) {
    parts.optimizer().visit_state([&](const std::string&, const at::Tensor& tensor) { writer.append(tensor); });
  }
  if (bank != nullptr) append_bank(*bank, writer);
  return {tensors_of(place.rank), writer.finish()};
}

CheckpointFile write_counters(const std::filesystem::path& folder, RunParts& parts, std::uint64_t rank) {
  torch::serialize::OutputArchive archive;
  parts.optimizer().save_counters(archive);
  DurableFile file(folder / counters_of(rank));
  archive.save_to([&](const void* bytes, std::size_t count) {
    file.write({static_cast<const std::byte*>(bytes), count});
    return count;
  });
  return {counters_of(rank), file.finish()};
}

/// @returns the tensor's entry. @throws Error where the file has none of this kind.
void check_entry(const TensorFileReader& file, const TensorEntry& wanted, bool any_rows = false) {
  const TensorEntry* const entry = file.find(wanted.name);
  const auto sizes = [&](const TensorEntry& of) {
    return any_rows ? std::vector(of.sizes.begin() + std::min<std::ptrdiff_t>(1, std::ssize(of.sizes)), of.sizes.end())
                    : of.sizes;
  };
  if (entry == nullptr || entry->dtype != wanted.dtype || entry->sizes.size() != wanted.sizes.size() ||
      sizes(*entry) != sizes(wanted)) {
    throw Error("the checkpoint's tensor " + wanted.name + (entry == nullptr ? " is missing" : " is of another size") +
                ": it is not of this run's network; nothing was used of it; resume with the configuration beside it");
  }
}

void restore_bank(const TensorFileReader& file, queue::NegativeBank& bank) {
  const at::Tensor counts = file.read(kBankCounts);
  const auto* const count = counts.const_data_ptr<std::int64_t>();
  const std::int64_t rows = file.find(kBankValues)->sizes[0];
  bank.clear();
  if (count[0] >= 1 && count[0] <= bank.options().capacity_limit()) bank.resize(count[0]);  // Its length then.
  bank.restart(std::max<std::int64_t>(0, count[2] - rows));
  for (std::int64_t first = 0; first < rows; first += kBankPieceRows) {
    const std::int64_t piece = std::min(kBankPieceRows, rows - first);
    const auto read = [&](const char* name) {
      return file.has(name) ? file.read_rows(name, first, piece) : at::Tensor();
    };
    bank.append({read(kBankValues), read(kBankScales), read(kBankLabels)});
  }
  const bool same = count[0] == bank.capacity();
  bank.restore_counts(same ? count[1] : bank.size() % bank.capacity(),
                      {static_cast<std::uint64_t>(count[2]), static_cast<std::uint64_t>(count[3]), 0});
}

void check_tensors(const TensorFileReader& file, RunParts& parts) {
  for (const NamedTensor& tensor : parts.method().state()) check_entry(file, entry_of(tensor.name, tensor.tensor));
  check_entry(file, entry_of(kGenerator, at::detail::getDefaultCPUGenerator().get_state()));
  const at::Tensor loss_scale = parts.step().precision().state();
  if (loss_scale.defined()) check_entry(file, entry_of(kLossScale, loss_scale));
}

void check_bank(const TensorFileReader& file, const queue::NegativeBank& bank) {
  for (const TensorEntry& entry : bank_entries(bank)) check_entry(file, entry, entry.name != kBankCounts);
}

/// From the files of all ranks that wrote the checkpoint, each of which has a share of the state or none.
void restore_optimizer(const FoundCheckpoint& found, optimizer::Optimizer& optimizer) {
  std::vector<std::unique_ptr<TensorFileReader>> readers;
  std::vector<torch::serialize::InputArchive> counters;
  optimizer::SavedPieces saved;
  const auto has = [&](const std::string& name) {
    return std::ranges::find(found.manifest.files, name, &CheckpointFile::name) != found.manifest.files.end();
  };
  for (std::uint64_t rank = 0; rank < found.manifest.world_size; ++rank) {
    if (!has(counters_of(rank))) continue;
    counters.emplace_back().load_from((found.path / counters_of(rank)).string());
    const TensorFileReader& file =
        *readers.emplace_back(std::make_unique<TensorFileReader>(found.path / tensors_of(rank)));
    for (const TensorEntry& entry : file.entries()) {
      if (!entry.name.starts_with(kOptimizer)) continue;
      const auto numel = static_cast<std::int64_t>(entry.bytes() / c10::elementSize(entry.dtype));
      saved.add(entry.name.substr(std::string_view(kOptimizer).size()), numel, entry.dtype,
                [&file, name = entry.name](std::int64_t first, std::int64_t count) {
                  return file.read_elements(name, first, count);
                });
    }
  }
  optimizer.load_counters(counters);
  optimizer.restore_state([&](const optimizer::StatePiece& piece) { return saved.read(piece); });
}

/// A rank's part of a checkpoint.
std::vector<CheckpointFile> write_part(const std::filesystem::path& folder, RunParts& parts, const RankPlace& place,
                                       bool sharded) {
  const bool with_optimizer = optimizer_rank(place, sharded) == place.rank;
  std::vector<CheckpointFile> files{write_tensors(folder, parts, place, with_optimizer)};
  if (with_optimizer) files.push_back(write_counters(folder, parts, place.rank));
  return files;
}

/// What ranks tell one another of the files that they wrote.
std::string text_of(const std::vector<CheckpointFile>& files) {
  Json::Array list;
  for (const CheckpointFile& file : files) list.push_back(to_json(file));
  return Json(std::move(list)).dump();
}

std::vector<CheckpointFile> files_of(const std::vector<std::string>& texts) {
  std::vector<CheckpointFile> files;
  for (const std::string& text : texts) {
    const std::string label = "what a rank says of its files";
    const Json list = parse_json(text, label, {.bytes = kManifestMaxBytes, .values = kManifestMaxBytes});
    for (const Json& file : *list.get_if<Json::Array>()) files.push_back(checkpoint_file_of(file, label));
  }
  return files;
}

/// Does `work`, of which a disk may be the matter. @returns why it failed on some rank, the same on all.
std::optional<std::string> attempt(RunRanks& ranks, const std::function<void()>& work) {
  std::string failure;
  try {
    work();
  } catch (const IoError& error) {
    failure = error.what();
  }
  return ranks.first_failure(failure);
}

double number(const Json& json, std::string_view key) {
  const Json* const found = json.find(key);
  if (const auto* const value = found == nullptr ? nullptr : found->get_if<double>()) return *value;
  if (const auto* const whole = found == nullptr ? nullptr : found->get_if<std::uint64_t>()) {
    return static_cast<double>(*whole);
  }
  return 0.0;
}

Json to_json(const RunProgress& progress) {
  return Json::Object{{"summary", to_json(progress.summary)},
                      {"steps_s", progress.steps_s},
                      {"stall_s", progress.stall_s},
                      {"skipped", Json::Array(progress.skipped.begin(), progress.skipped.end())}};
}

RunProgress progress_of(const Json& json) {
  const Json* const summary = json.find("summary");
  RunProgress progress{summary == nullptr ? Summary() : summary_of(*summary), number(json, "steps_s"),
                       number(json, "stall_s")};
  const Json* const skipped = json.find("skipped");
  if (const auto* const list = skipped == nullptr ? nullptr : skipped->get_if<Json::Array>()) {
    for (const Json& step : *list) {
      if (const auto* const index = step.get_if<std::uint64_t>()) progress.skipped.push_back(*index);
    }
  }
  return progress;
}

/// Keys, and blocks of them, that say where and how a run is and not what comes out.
constexpr std::array<std::string_view, 24> kFree = {"out",
                                                    "ranks",
                                                    "epochs",
                                                    "steps",
                                                    "steps_per_print",
                                                    "deterministic",
                                                    "wall_clock_breakdown",
                                                    "memory_breakdown",
                                                    "dump_state",
                                                    "encoder.checkpointing",
                                                    "data.workers",
                                                    "data.prefetch",
                                                    "data.damaged_max",
                                                    "aio",
                                                    "offload.host_bytes",
                                                    "offload.disk_bytes",
                                                    "offload.gradients",
                                                    "offload.nvme_path",
                                                    "checkpoint",
                                                    "evaluation",
                                                    "contrastive.bank.device",
                                                    "contrastive.bank.host_bytes",
                                                    "contrastive.bank.segment_rows",
                                                    "zero_optimization"};

/// A value of both configurations and of the default one; null where a configuration lacks the key.
struct Compared {
  const Json* there;
  const Json* here;
  const Json* usual;
  [[nodiscard]] static const Json* member(const Json* of, const std::string& key) {
    return of == nullptr || of->get_if<Json::Object>() == nullptr ? nullptr : of->find(key);
  }
  [[nodiscard]] Compared at(const std::string& key) const {
    return {member(there, key), member(here, key), member(usual, key)};
  }
};

// A key that the version of the checkpoint did not know had its default there.
void compare(const std::string& path, const Compared& value, std::vector<std::string>& differences) {
  if (std::ranges::find(kFree, path) != kFree.end()) return;
  const Json* const there = value.there != nullptr ? value.there : value.usual;
  const auto* const object = value.here == nullptr ? nullptr : value.here->get_if<Json::Object>();
  const auto* const other = there == nullptr ? nullptr : there->get_if<Json::Object>();
  if (object == nullptr || other == nullptr) {
    if (there != nullptr && value.here != nullptr && *there == *value.here) return;
    const auto shown = [](const Json* json) { return json == nullptr ? std::string("nothing") : json->dump(); };
    differences.push_back(path + ": " + shown(value.there) + " there, " + shown(value.here) + " here");
    return;
  }
  const std::string prefix = path.empty() ? "" : path + ".";
  for (const auto& [key, unused] : *object) compare(prefix + key, value.at(key), differences);
  for (const auto& [key, unused] : *other) {
    if (value.here->find(key) == nullptr) compare(prefix + key, value.at(key), differences);
  }
}

}  // namespace

std::vector<std::string> differences_of_results(const Json& there, const Json& here) {
  std::vector<std::string> differences;
  const Json usual = to_json(Config());
  compare("", {&there, &here, &usual}, differences);
  return differences;
}

std::optional<std::string> save_run(const std::filesystem::path& root, std::uint64_t step, const Json& config,
                                    const RunProgress& progress, RunParts& parts, RunRanks& ranks) {
  const at::NoGradGuard no_grad;
  const bool sharded = ranks.gradient_groups().exchange != nullptr;
  std::optional<CheckpointWriter> writer;  // The leading rank's, beside whose files the others write.
  std::vector<CheckpointFile> own;
  std::optional<std::string> failure = attempt(ranks, [&] {
    if (ranks.leads()) writer.emplace(root, step);
  });
  if (failure) return failure;
  failure = attempt(ranks, [&] { own = write_part(partial_folder(root, step), parts, ranks.place(), sharded); });
  if (failure) return failure;
  Manifest manifest;
  manifest.step = step;
  manifest.world_size = ranks.place().world_size;
  manifest.config = config;
  manifest.progress = to_json(progress);
  manifest.files = files_of(ranks.exchange(text_of(own)));
  return attempt(ranks, [&] {
    if (writer) writer->commit(manifest);
  });
}

void check_resumable(const FoundCheckpoint& found, const Json& config, std::uint64_t world_size) {
  std::vector<std::string> differences = differences_of_results(found.manifest.config, config);
  if (found.manifest.world_size != world_size) {  // Other ranks have other shares of the same batch.
    std::erase_if(differences, [](const std::string& difference) {
      return difference.starts_with("train_micro_batch_size_per_gpu:") ||
             difference.starts_with("gradient_accumulation_steps:");
    });
  }
  if (differences.empty()) return;
  std::string text = found.path.string() + " is of a run with another configuration:";
  for (const std::string& difference : differences) text += " " + difference + ";";
  throw ConfigError(text + " resume with the configuration that it was made with (config.json beside checkpoints/)");
}

void restore_network(const FoundCheckpoint& found, ProjectedEncoder& network) {
  const at::NoGradGuard no_grad;
  const TensorFileReader file(found.path / kTensors);
  std::vector<NamedTensor> state = network.parameters();
  for (NamedTensor& buffer : network.buffers()) state.push_back(std::move(buffer));
  for (const NamedTensor& tensor : state) check_entry(file, entry_of(tensor.name, tensor.tensor));
  for (const NamedTensor& tensor : state) tensor.tensor.copy_(file.read(tensor.name));
}

RunProgress restore_run(const FoundCheckpoint& found, RunParts& parts, RunRanks& ranks) {
  const at::NoGradGuard no_grad;
  // Of more ranks than there were, the others begin with what one of those had of its own.
  const TensorFileReader own(found.path / tensors_of(ranks.place().rank % found.manifest.world_size));
  const TensorFileReader common(found.path / kTensors);
  check_tensors(own, parts);
  if (parts.method().bank() != nullptr) check_bank(common, *parts.method().bank());
  for (const NamedTensor& tensor : parts.method().state()) tensor.tensor.copy_(own.read(tensor.name));
  parts.method().state_restored();
  restore_optimizer(found, parts.optimizer());
  if (parts.method().bank() != nullptr) restore_bank(common, *parts.method().bank());
  at::Generator generator = at::detail::getDefaultCPUGenerator();
  generator.set_state(own.read(kGenerator));
  if (own.has(kLossScale)) parts.step().precision().restore(own.read(kLossScale));
  return progress_of(found.manifest.progress);
}

}  // namespace spillway::app
