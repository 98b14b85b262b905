#include <spillway/app/training/resume.hpp>

#include <system_error>

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

ResumePoint find_resume_point(const std::optional<std::string>& resume, const fs::path& out) {
  ResumePoint point;
  if (!resume) return point;
  const auto note = [&](const std::string& line) { point.notes.push_back(line); };
  const fs::path own = checkpoint_root(out);
  if (*resume == "auto") {
    point.found = newest_checkpoint(own, note);
    if (!point.found) note("--resume auto: there is no checkpoint in " + out.string() + ", the run starts anew");
  } else if (const fs::path named = *resume; there_is(named / "manifest.json")) {
    point.found = FoundCheckpoint{named, verify_checkpoint(named)};
  } else {
    point.found = newest_checkpoint(there_is(checkpoint_root(named)) ? checkpoint_root(named) : named, note);
    if (!point.found) {
      std::string text = "--resume " + *resume + ": there is no whole checkpoint; name a checkpoint or a run's folder";
      for (const std::string& line : point.notes) text += "; " + line;
      throw Error(text);
    }
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
