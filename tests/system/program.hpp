#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include <spillway/app/config/json.hpp>
#include <support/spawn.hpp>
#include <support/temp_dir.hpp>

namespace spillway::test {

/// The program `spillway` that was built with the tests.
[[nodiscard]] std::filesystem::path program();

/// A folder for one test: a configuration of a few steps on the digits, an empty folder to swap to, one for the run.
class Workplace {
 public:
  Workplace();

  [[nodiscard]] const std::filesystem::path& swap() const noexcept { return swap_; }
  /// Another folder to swap to, for the runs that follow.
  void swap_to(std::filesystem::path folder) { swap_ = std::move(folder); }
  [[nodiscard]] std::filesystem::path run_folder() const { return folder_ / "run"; }
  [[nodiscard]] std::filesystem::path operator/(const std::string& name) const { return folder_ / name; }

  /// Arguments of a run of the configuration with optimizer state and cold segments on disk, and `more`.
  [[nodiscard]] SpawnOptions on_disk(std::vector<std::string> more = {}) const;
  /// The same with everything in memory.
  [[nodiscard]] SpawnOptions in_memory(std::vector<std::string> more = {}) const;

  /// summary.json of the run. @throws what reading it throws.
  [[nodiscard]] app::Json summary() const;

 private:
  [[nodiscard]] SpawnOptions train(const std::string& device, std::vector<std::string> more) const;

  TempDir folder_;
  std::filesystem::path swap_;
};

/// The same run into another folder.
[[nodiscard]] SpawnOptions into(SpawnOptions run, const std::filesystem::path& out);

/// The files and folders in a folder, by name.
[[nodiscard]] std::vector<std::string> names_in(const std::filesystem::path& folder);

[[nodiscard]] std::string read_text(const std::filesystem::path& path);
void write_text(const std::filesystem::path& path, const std::string& text);

/// A member of a summary, of that type.
template <typename T>
[[nodiscard]] T member(const app::Json& object, const std::string& name) {
  return *object.find(name)->get_if<T>();
}

}  // namespace spillway::test
