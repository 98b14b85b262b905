#pragma once

#include <optional>
#include <string>

#include <spillway/offload/engine_factory.hpp>
#include <spillway/offload/unique_fd.hpp>

namespace spillway::offload {

/// `spillway` in the user's folder for caches ($XDG_CACHE_HOME, else ~/.cache); empty where there is none.
[[nodiscard]] std::string user_cache_folder();

/// Remembers from one process to the next what trials of disks found: one small file for each key, replaced atomically.
/// A cache: whatever is wrong with it (no folder, no rights, a file of another format or cut short), nothing is
/// remembered, and nobody hears of it. Functions don't throw.
class TuningCache {
 public:
  /// @param folder  made when something is stored; empty: nothing is ever remembered.
  explicit TuningCache(std::string folder) : folder_(std::move(folder)) {}

  [[nodiscard]] std::optional<DiskSetting> find(const std::string& key) const noexcept;
  void store(const std::string& key, const DiskSetting& setting) const noexcept;
  /// Held while a disk is tried, so that the ranks of one machine don't disturb each other's trial: the later ones find
  /// what the first stored. Waits 3 s at most; empty where it can't be had.
  [[nodiscard]] UniqueFd lock() const noexcept;

 private:
  [[nodiscard]] std::string file_of(const std::string& key) const;
  void make_folder() const;

  std::string folder_;
};

}  // namespace spillway::offload
