#include <spillway/app/checkpoint/checkpoint_folder.hpp>

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <span>
#include <system_error>
#include <utility>

#include <spillway/app/checkpoint/durable_file.hpp>
#include <spillway/offload/error.hpp>

namespace spillway::app {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kPrefix = "step_";
constexpr std::string_view kPartial = ".partial";  // After the name of a folder that is being written or removed.
constexpr const char* kManifest = "manifest.json";
constexpr const char* kLatest = "latest";

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

[[noreturn]] void damaged(const fs::path& what, const std::string& why) {
  throw Error(what.string() + ": " + why + "; " + std::string(kTakeAnother));
}

}  // namespace

Manifest read_manifest(const fs::path& checkpoint) {
  const fs::path path = checkpoint / kManifest;
  std::error_code error;
  if (!fs::is_regular_file(fs::symlink_status(path, error))) {
    damaged(checkpoint, "it has no manifest.json, so that it is no checkpoint");
  }
  const InputFile file(path);
  if (file.bytes() > kManifestMaxBytes) damaged(path, "it is larger than any manifest");
  std::string text(file.bytes(), '\0');
  file.read(std::as_writable_bytes(std::span(text)), 0);
  Manifest manifest = parse_manifest(text, path.string());
  if (const auto named = step_of(checkpoint); named && *named != manifest.step) {
    damaged(path, "it is of the checkpoint after " + std::to_string(manifest.step) + " steps");
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
  write_text(folder_ / kManifest, manifest_text(manifest));
  synchronise_folder(folder_);
  const fs::path place = root_ / name_of(step_);
  std::error_code error;
  // The same step again, after a damaged checkpoint was passed over or an older one resumed: one takes the other's
  // place.
  fs::path former;
  if (fs::exists(place, error)) {
    former = folder_;
    if (::renameat2(AT_FDCWD, folder_.c_str(), AT_FDCWD, place.c_str(), RENAME_EXCHANGE) != 0) {
      former = place.string() + "_old" + std::string(kPartial);  // The file system can't exchange names.
      fs::remove_all(former, error);
      rename_over(place, former);
      rename_over(folder_, place);
    }
  } else {
    rename_over(folder_, place);
  }
  committed_ = true;
  synchronise_folder(root_);
  if (!former.empty()) fs::remove_all(former, error);  // Not before it is sure that the other has its place.
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

std::vector<std::string> find_damages(const fs::path& checkpoint, const Manifest& manifest) {
  std::vector<std::string> damages;
  for (const CheckpointFile& file : manifest.files) {
    try {
      const auto damage = find_damage(checkpoint / file.name, file.digest);
      if (damage) damages.push_back((checkpoint / file.name).string() + ": " + *damage);
    } catch (const IoError& error) {
      damages.emplace_back(error.what());
    }
  }
  return damages;
}

Manifest verify_checkpoint(const fs::path& checkpoint) {
  Manifest manifest = read_manifest(checkpoint);
  for (const CheckpointFile& file : manifest.files) {
    if (const auto damage = find_damage(checkpoint / file.name, file.digest)) damaged(checkpoint / file.name, *damage);
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
