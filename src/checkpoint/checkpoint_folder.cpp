#include <spillway/app/checkpoint/checkpoint_folder.hpp>

#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <fstream>
#include <sstream>
#include <system_error>
#include <utility>

#include <spillway/offload/error.hpp>

namespace spillway::app {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kPrefix = "step_";
constexpr std::string_view kPartial = ".partial";  // After the name of a folder that is being written or removed.
constexpr const char* kManifest = "manifest.json";
constexpr const char* kLatest = "latest";
constexpr std::uint64_t kVersion = 1;
constexpr JsonLimits kManifestLimits{.bytes = 16U << 20U, .depth = 12, .members = 10'000};

std::string name_of(std::uint64_t step) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "step_%010llu", static_cast<unsigned long long>(step));
  return text.data();
}

std::optional<std::uint64_t> step_of(const fs::path& folder) {
  const std::string name = folder.filename().string();
  if (!name.starts_with(kPrefix)) return std::nullopt;
  std::uint64_t step = 0;
  const char* const end = name.data() + name.size();
  const auto [rest, failure] = std::from_chars(name.data() + kPrefix.size(), end, step);
  return failure == std::errc() && rest == end ? std::optional(step) : std::nullopt;
}

std::string hexadecimal(std::uint64_t value) {
  std::array<char, 17> text{};
  std::snprintf(text.data(), text.size(), "%016llx", static_cast<unsigned long long>(value));
  return text.data();
}

[[noreturn]] void io_failure(const std::string& operation, const fs::path& path, int error_number) {
  throw IoError({.operation = operation,
                 .path = path.string(),
                 .error_number = error_number,
                 .advice = "checkpoints are in the run's folder (--out), which has to be writable and have space"});
}

void make_folder(const fs::path& path) {
  if (::mkdir(path.c_str(), 0700) != 0 && errno != EEXIST) io_failure("create folder", path, errno);
}

void rename_over(const fs::path& from, const fs::path& to) {
  std::error_code error;
  fs::rename(from, to, error);
  if (error) io_failure("rename", from, error.value());
}

void write_text(const fs::path& path, std::string_view text) {
  DurableFile file(path);
  file.write(text);
  static_cast<void>(file.finish());
}

Json to_json(const Manifest& manifest) {
  Json::Array files;
  for (const CheckpointFile& file : manifest.files) {
    files.emplace_back(
        Json::Object{{"name", file.name}, {"bytes", file.digest.bytes}, {"xxh3", hexadecimal(file.digest.xxh3)}});
  }
  return Json::Object{{"spillway_checkpoint", kVersion},   {"step", manifest.step},
                      {"world_size", manifest.world_size}, {"files", std::move(files)},
                      {"config", manifest.config},         {"progress", manifest.progress}};
}

[[noreturn]] void damaged(const fs::path& what, const std::string& why) {
  throw Error(what.string() + ": " + why + "; " + std::string(kTakeAnother));
}

template <typename T>
T member(const fs::path& path, const Json& json, std::string_view key) {
  const Json* const found = json.find(key);
  const T* const value = found == nullptr ? nullptr : found->get_if<T>();
  if (value == nullptr) damaged(path, "it has no good `" + std::string(key) + "`");
  return *value;
}

std::uint64_t hash_of(const fs::path& path, const std::string& text) {
  std::uint64_t value = 0;
  const auto [rest, failure] = std::from_chars(text.data(), text.data() + text.size(), value, 16);
  if (failure != std::errc() || rest != text.data() + text.size()) damaged(path, "it has no good `xxh3`");
  return value;
}

std::string read_text(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  if (!file || !text) io_failure("read", path, errno);
  return std::move(text).str();
}

}  // namespace

Manifest read_manifest(const fs::path& checkpoint) {
  const fs::path path = checkpoint / kManifest;
  std::error_code error;
  if (!fs::is_regular_file(fs::symlink_status(path, error))) {
    damaged(checkpoint, "it has no manifest.json, so that it is no checkpoint");
  }
  if (fs::file_size(path, error) > kManifestLimits.bytes) damaged(path, "it is larger than any manifest");
  Json json;
  try {
    json = parse_json(read_text(path), path.string(), kManifestLimits);
  } catch (const ConfigError& wrong) {
    damaged(path, wrong.what());
  }
  if (const auto version = member<std::uint64_t>(path, json, "spillway_checkpoint"); version != kVersion) {
    throw Error(path.string() + ": of version " + std::to_string(version) + ", and this program reads version " +
                std::to_string(kVersion) + "; take the program that wrote it");
  }
  Manifest manifest;
  manifest.step = member<std::uint64_t>(path, json, "step");
  manifest.world_size = member<std::uint64_t>(path, json, "world_size");
  manifest.config = member<Json::Object>(path, json, "config");
  manifest.progress = member<Json::Object>(path, json, "progress");
  for (const Json& file : member<Json::Array>(path, json, "files")) {
    const std::string name = member<std::string>(path, file, "name");
    if (name.empty() || name.front() == '.' || name.find('/') != name.npos || name.find('\0') != name.npos) {
      damaged(path, "it names a file that can't be in its folder");
    }
    manifest.files.push_back(
        {name, {member<std::uint64_t>(path, file, "bytes"), hash_of(path, member<std::string>(path, file, "xxh3"))}});
  }
  return manifest;
}

fs::path partial_folder(const fs::path& root, std::uint64_t step) {
  return root / (name_of(step) + std::string(kPartial));
}

CheckpointWriter::CheckpointWriter(fs::path root, std::uint64_t step)
    : root_(std::move(root)), step_(step), folder_(partial_folder(root_, step)) {
  make_folder(root_);
  std::error_code error;
  fs::remove_all(folder_, error);  // Of a run that was killed while it wrote the same.
  make_folder(folder_);
}

CheckpointWriter::~CheckpointWriter() {
  std::error_code ignored;
  if (!committed_) fs::remove_all(folder_, ignored);
}

void CheckpointWriter::commit(const Manifest& manifest) {
  write_text(folder_ / kManifest, to_json(manifest).dump(2) + "\n");
  synchronise_folder(folder_);
  const fs::path place = root_ / name_of(step_);
  std::error_code error;
  if (fs::exists(place, error)) {  // The same step again, after a damaged checkpoint was passed over.
    const fs::path aside = place.string() + "_old" + std::string(kPartial);
    fs::remove_all(aside, error);
    rename_over(place, aside);
    rename_over(folder_, place);
    fs::remove_all(aside, error);
  } else {
    rename_over(folder_, place);
  }
  committed_ = true;
  synchronise_folder(root_);
  const fs::path pointer = root_ / (std::string(kLatest) + std::string(kPartial));
  fs::remove(pointer, error);
  write_text(pointer, name_of(step_) + "\n");
  rename_over(pointer, root_ / kLatest);
  synchronise_folder(root_);
}

std::vector<fs::path> list_checkpoints(const fs::path& root) {
  std::vector<std::pair<std::uint64_t, fs::path>> found;
  std::error_code error;
  for (fs::directory_iterator entry(root, error), end; !error && entry != end; entry.increment(error)) {
    if (const auto step = step_of(entry->path())) found.emplace_back(*step, entry->path());
  }
  std::ranges::sort(found, std::greater<>());
  std::vector<fs::path> paths;
  for (auto& [step, path] : found) paths.push_back(std::move(path));
  return paths;
}

Manifest verify_checkpoint(const fs::path& checkpoint) {
  Manifest manifest = read_manifest(checkpoint);
  for (const CheckpointFile& file : manifest.files) {
    const FileDigest digest = digest_file(checkpoint / file.name);
    if (digest.bytes != file.digest.bytes) {
      damaged(checkpoint / file.name,
              "it has " + std::to_string(digest.bytes) + " bytes instead of " + std::to_string(file.digest.bytes));
    }
    if (digest.xxh3 != file.digest.xxh3) damaged(checkpoint / file.name, "its bytes are not those that were written");
  }
  return manifest;
}

std::optional<FoundCheckpoint> newest_checkpoint(const fs::path& root,
                                                 const std::function<void(const std::string&)>& skipped) {
  for (const fs::path& path : list_checkpoints(root)) {
    try {
      return FoundCheckpoint{path, verify_checkpoint(path)};
    } catch (const Error& error) {
      skipped("skipped a checkpoint: " + std::string(error.what()));
    }
  }
  return std::nullopt;
}

void remove_old_checkpoints(const fs::path& root, std::uint64_t step, std::uint64_t keep_last,
                            std::uint64_t keep_every) {
  std::uint64_t place = 0;
  std::error_code error;
  std::vector<fs::path> partial;  // Of runs that were killed.
  for (fs::directory_iterator entry(root, error), end; !error && entry != end; entry.increment(error)) {
    if (entry->path().extension() == kPartial) partial.push_back(entry->path());
  }
  for (const fs::path& path : partial) fs::remove_all(path, error);
  for (const fs::path& path : list_checkpoints(root)) {
    const std::uint64_t of = step_of(path).value_or(0);
    if (of > step || place++ < keep_last || (keep_every != 0 && of % keep_every == 0)) continue;
    const fs::path aside = path.string() + std::string(kPartial);
    fs::rename(path, aside, error);  // First the name, so that half of one is never taken for a whole one.
    if (!error) fs::remove_all(aside, error);
  }
}

}  // namespace spillway::app
