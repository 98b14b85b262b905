#include <spillway/app/training/run_start.hpp>

#include <filesystem>

#include <spillway/app/config/load_config.hpp>
#include <spillway/app/report/summary.hpp>
#include <spillway/app/training/run_checkpoint.hpp>
#include <spillway/distributed/together.hpp>

namespace spillway::app {

RunStart start_run(const Config& config, const std::optional<std::string>& resume, RunRanks& ranks) {
  RunStart start;
  std::string path;
  distributed::together(ranks.all(), "start the run in " + config.out, [&] {
    if (!ranks.leads()) return;
    start.folder.emplace(config.out);
    start.point = find_resume_point(resume, config.out);
    if (start.point.found) {
      check_resumable(*start.point.found, to_json(config), ranks.place().world_size);
      path = start.point.found->path.string();
    }
    write_json_file(std::filesystem::path(config.out) / "config.json", to_json(config));
  });
  path = ranks.exchange(path).front();
  const bool in_place = !ranks.exchange(start.point.in_place ? "in place" : "").front().empty();
  if (!ranks.leads() && !path.empty()) {
    start.point.found = FoundCheckpoint{path, read_manifest(path)};
    start.point.in_place = in_place;
  }
  return start;
}

}  // namespace spillway::app
