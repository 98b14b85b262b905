#include "storage/saved_steps.hpp"

#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include <spillway/app/checkpoint/checkpoint_folder.hpp>
#include <spillway/app/checkpoint/tensor_header.hpp>

namespace spillway::test {
namespace {

namespace fs = std::filesystem;

std::string content(std::uint64_t step) {
  std::string text;
  for (std::uint64_t i = 0; i < 40; ++i) text += std::to_string(step * 1000 + i) + " ";
  return text;
}

app::Manifest write_files(const fs::path& folder, std::uint64_t step) {
  app::DurableFile tensors(folder / "rank_0.safetensors");
  const std::string values = content(step);
  const std::vector<app::StoredTensor> entries = {
      {.name = "values", .dtype = "U8", .sizes = {static_cast<std::int64_t>(values.size())}}};
  tensors.write(app::tensor_header_text(entries, "the file"));
  tensors.end_part("the header");
  tensors.write(values);
  tensors.end_part("values");
  app::DurableFile other(folder / "rank_0.other");
  other.write(std::to_string(step));
  app::Manifest manifest;
  manifest.step = step;
  manifest.files = {{"rank_0.safetensors", tensors.finish()}, {"rank_0.other", other.finish()}};
  manifest.config = app::Json::Object{};
  manifest.progress = app::Json::Object{{"step", step}};
  return manifest;
}

std::string text_of(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

}  // namespace

void save_step(const fs::path& root, std::uint64_t step) {
  app::CheckpointWriter writer(root, step);
  writer.commit(write_files(writer.folder(), step));
  app::remove_old_checkpoints(root, step, 2, 0);
}

void save_step_in_place(const fs::path& root, std::uint64_t step) {
  std::string name = std::to_string(step);
  name.insert(0, 10 - name.size(), '0');
  const fs::path folder = root / ("step_" + name);
  fs::create_directories(folder);
  const app::Manifest manifest = write_files(folder, step);
  app::DurableFile file(folder / "manifest.json");
  file.write(app::manifest_text(manifest));
  static_cast<void>(file.finish());
  app::remove_old_checkpoints(root, step, 2, 0);
}

ResumedStep resume_step(const fs::path& root) {
  ResumedStep resumed;
  const auto found = app::newest_checkpoint(root, [&](const std::string& why) { resumed.skipped += why + "\n"; });
  if (!found) return resumed;
  resumed.step = found->manifest.step;
  if (!text_of(found->path / "rank_0.safetensors").ends_with(content(resumed.step)) ||
      text_of(found->path / "rank_0.other") != std::to_string(resumed.step)) {
    resumed.wrong = found->path.string() + " verifies and is not what was written";
  }
  return resumed;
}

}  // namespace spillway::test
