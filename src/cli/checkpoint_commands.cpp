#include <spillway/app/cli/checkpoint_commands.hpp>

#include <algorithm>
#include <array>
#include <cstdio>
#include <iostream>
#include <map>
#include <utility>

#include <ATen/core/Dict.h>
#include <torch/csrc/jit/serialization/pickle.h>

#include <spillway/app/checkpoint/checkpoint_folder.hpp>
#include <spillway/app/checkpoint/tensor_file.hpp>
#include <spillway/app/training/resume.hpp>
#include <spillway/offload/error.hpp>
#include <spillway/offload/format_bytes.hpp>

namespace spillway::app {
namespace {

namespace fs = std::filesystem;

bool has_tensors(const CheckpointFile& file) { return file.name.ends_with(".safetensors"); }

std::uint64_t bytes_of(const Manifest& manifest) {
  std::uint64_t bytes = 0;
  for (const CheckpointFile& file : manifest.files) bytes += file.digest.bytes;
  return bytes;
}

std::string counted(std::uint64_t count, const std::string& what) {
  return std::to_string(count) + " " + what + (count == 1 ? "" : "s");
}

std::string shape_of(const StoredTensor& tensor) {
  std::string text = tensor.dtype + " [";
  for (const std::int64_t size : tensor.sizes) text += (text.back() == '[' ? "" : ", ") + std::to_string(size);
  return text + "]";
}

/// What a tensor is of: the first part of its name.
std::string owner_of(const StoredTensor& tensor) { return tensor.name.substr(0, tensor.name.find('.')); }

Json describe(const CheckpointFile& file, const std::vector<StoredTensor>& tensors) {
  Json::Array list;
  for (const StoredTensor& tensor : tensors) {
    Json::Array sizes;
    for (const std::int64_t size : tensor.sizes) sizes.emplace_back(static_cast<std::uint64_t>(size));
    list.emplace_back(Json::Object{
        {"name", tensor.name}, {"dtype", tensor.dtype}, {"shape", std::move(sizes)}, {"bytes", bytes_of(tensor)}});
  }
  return Json::Object{{"name", file.name}, {"bytes", file.digest.bytes}, {"tensors", std::move(list)}};
}

std::string line_of(const std::string& indent, const std::string& name, std::uint64_t bytes, const std::string& more) {
  std::array<char, 256> line{};
  std::snprintf(line.data(), line.size(), "%s%-40s %12s  %s\n", indent.c_str(), name.c_str(),
                offload::format_bytes(bytes).c_str(), more.c_str());
  return line.data();
}

std::string lines_of(const CheckpointFile& file, const std::vector<StoredTensor>& tensors, bool each) {
  std::string text = line_of("  ", file.name, file.digest.bytes, "");
  if (each) {
    for (const StoredTensor& tensor : tensors) {
      text += "    " + tensor.name + "  " + shape_of(tensor) + "\n";
    }
    return text;
  }
  std::map<std::string, std::pair<std::uint64_t, std::uint64_t>> owners;  // Tensors and bytes of each.
  for (const StoredTensor& tensor : tensors) {
    auto& [count, bytes] = owners[owner_of(tensor)];
    ++count;
    bytes += bytes_of(tensor);
  }
  for (const auto& [owner, size] : owners) {
    text += line_of("    ", owner, size.second, counted(size.first, "tensor"));
  }
  return text;
}

/// One checkpoint: the one at `path`, or the newest of a run or of its folder of checkpoints, damaged or not.
fs::path newest_in(const std::string& path) {
  const std::vector<fs::path> all = checkpoints_at(path);
  if (all.empty()) throw Error(path + ": there is no checkpoint; name a checkpoint or a run's folder");
  return all.front();
}

bool is_weight(const TensorEntry& entry) {
  constexpr std::array<std::string_view, 5> kOthers = {"momentum_encoder.", "optimizer.", "bank.", "generator.",
                                                       "loss_scale"};
  return std::ranges::none_of(kOthers, [&](std::string_view prefix) { return entry.name.starts_with(prefix); });
}

}  // namespace

int run_inspect(const InspectFlags& flags) {
  const fs::path checkpoint = newest_in(flags.checkpoint);
  const Manifest manifest = read_manifest(checkpoint);
  Json::Array files;
  std::string text = checkpoint.string() + ": after " + counted(manifest.step, "step") + ", of " +
                     counted(manifest.world_size, "rank") + ", " + offload::format_bytes(bytes_of(manifest)) + "\n";
  for (const CheckpointFile& file : manifest.files) {
    std::vector<StoredTensor> tensors;
    if (has_tensors(file)) tensors = read_tensor_header(InputFile(checkpoint / file.name)).tensors;
    text += lines_of(file, tensors, flags.tensors);
    files.push_back(describe(file, tensors));
  }
  const Json report = Json::Object{{"checkpoint", checkpoint.string()}, {"step", manifest.step},
                                   {"world_size", manifest.world_size}, {"files", std::move(files)},
                                   {"config", manifest.config},         {"progress", manifest.progress}};
  std::cout << (flags.json ? report.dump(2) + "\n" : text);
  return 0;
}

int run_verify(const VerifyFlags& flags) {
  const std::vector<fs::path> all = checkpoints_at(flags.checkpoint);
  if (all.empty()) throw Error(flags.checkpoint + ": there is no checkpoint; name a checkpoint or a run's folder");
  int status = 0;
  for (const fs::path& checkpoint : all) {
    std::vector<std::string> damages;
    std::string whole;
    try {
      const Manifest manifest = read_manifest(checkpoint);
      damages = find_damages(checkpoint, manifest);
      whole = counted(manifest.files.size(), "file") + ", " + offload::format_bytes(bytes_of(manifest));
    } catch (const Error& error) {
      damages = {error.what()};
    }
    std::cout << checkpoint.string() << (damages.empty() ? ": whole, " + whole : std::string(": damaged")) << "\n";
    for (const std::string& damage : damages) std::cout << "  " << damage << "\n";
    if (!damages.empty()) status = 1;
  }
  return status;
}

int run_export(const ExportFlags& flags) {
  const NamedCheckpoint named = find_checkpoint(flags.checkpoint);
  for (const std::string& note : named.notes) std::cerr << "warning: " << note << "\n";
  const TensorFileReader file(named.found.path / "rank_0.safetensors");
  std::vector<TensorEntry> weights;
  for (const TensorEntry& entry : file.entries()) {
    if (is_weight(entry)) weights.push_back(entry);
  }
  if (flags.format == "torch") {
    c10::Dict<std::string, at::Tensor> state;
    for (const TensorEntry& entry : weights) state.insert(entry.name, file.read(entry.name));
    const std::vector<char> pickled = torch::jit::pickle_save(state);
    DurableFile out(flags.out);
    out.write(std::string_view(pickled.data(), pickled.size()));
    static_cast<void>(out.finish());
  } else {
    TensorFileWriter out(flags.out, weights);
    for (const TensorEntry& entry : weights) out.append(file.read(entry.name));
    static_cast<void>(out.finish());
  }
  std::cout << flags.out << ": " << counted(weights.size(), "tensor") << " of " << named.found.path.string() << "\n";
  return 0;
}

}  // namespace spillway::app
