#include <spillway/app/training/resume.hpp>

#include <system_error>
#include <utility>

#include <spillway/offload/error.hpp>

namespace spillway::app {
namespace {

namespace fs = std::filesystem;

bool there_is(const fs::path& path) {
  std::error_code ignored;
  return fs::exists(path, ignored);
}

bool same_folder(const fs::path& a, const fs::path& b) {
  std::error_code error;
  return fs::equivalent(a, b, error) && !error;
}

}  // namespace

fs::path checkpoint_root(const fs::path& out) { return out / "checkpoints"; }

std::vector<fs::path> checkpoints_at(const fs::path& path) {
  if (there_is(path / "manifest.json")) return {path};
  return list_checkpoints(there_is(checkpoint_root(path)) ? checkpoint_root(path) : path);
}

NamedCheckpoint find_checkpoint(const fs::path& path) {
  if (there_is(path / "manifest.json")) return {{path, verify_checkpoint(path)}, {}};
  std::vector<std::string> notes;
  const fs::path root = there_is(checkpoint_root(path)) ? checkpoint_root(path) : path;
  if (auto found = newest_checkpoint(root, [&](const std::string& line) { notes.push_back(line); })) {
    return {std::move(*found), std::move(notes)};
  }
  std::string text = path.string() + ": there is no whole checkpoint; name a checkpoint or a run's folder";
  for (const std::string& line : notes) text += "; " + line;
  throw Error(text);
}

ResumePoint find_resume_point(const std::optional<std::string>& resume, const fs::path& out) {
  ResumePoint point;
  if (!resume) return point;
  const auto note = [&](const std::string& line) { point.notes.push_back(line); };
  const fs::path own = checkpoint_root(out);
  if (*resume == "auto") {
    point.found = newest_checkpoint(own, note);
    if (!point.found) note("--resume auto: there is no checkpoint in " + out.string() + ", the run starts anew");
  } else {
    NamedCheckpoint named = find_checkpoint(*resume);
    point.found = std::move(named.found);
    point.notes = std::move(named.notes);
  }
  point.in_place = point.found && same_folder(point.found->path.parent_path(), own);
  return point;
}

std::optional<fs::path> put_checkpoints_aside(const fs::path& out) {
  const fs::path root = checkpoint_root(out);
  if (list_checkpoints(root).empty()) return std::nullopt;
  fs::path aside;
  int number = 0;
  do {
    aside = root.string() + "." + std::to_string(++number);
  } while (there_is(aside));
  std::error_code error;
  fs::rename(root, aside, error);
  if (error) {
    throw IoError({.operation = "rename",
                   .path = root.string(),
                   .error_number = error.value(),
                   .advice = "go on with --resume auto, or name another folder (--out)"});
  }
  return aside;
}

}  // namespace spillway::app
