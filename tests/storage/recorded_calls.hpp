#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace spillway::test {

/// What this program asked of the file system.
struct FileCall {
  enum class Kind { kCreate, kWrite, kSyncFile, kSyncFolder, kMakeFolder, kRename, kExchange, kRemove, kSaved };
  Kind kind;
  std::filesystem::path path;
  std::filesystem::path to = {};  ///< Of a rename or exchange.
  std::string bytes = {};         ///< Of a write, which goes to the file's end.
  std::uint64_t step = 0;         ///< Of kSaved, which no call is: a checkpoint was said to be on the disk.
};

/// How calls are to fail.
struct CallFault {
  std::uint64_t call = 1;  ///< The first that fails, counted from 1.
  int error_number = 0;    ///< With errno; 0: it is a write of which half is done.
  bool for_good = false;   ///< All that follow fail too, apart from those that remove.
};

/// Stands between this program and the kernel as long as it lives: notes each call that changes something below a
/// folder, and makes some fail. The program defines these functions of libc itself for that, so that calls from within
/// the standard library come here as well. What is synced is not waited for. One at a time, one thread.
class RecordedCalls {
 public:
  explicit RecordedCalls(const std::filesystem::path& below, std::optional<CallFault> fault = std::nullopt);
  ~RecordedCalls();
  RecordedCalls(const RecordedCalls&) = delete;
  RecordedCalls& operator=(const RecordedCalls&) = delete;

  /// In order; those that failed are not in it.
  [[nodiscard]] const std::vector<FileCall>& calls() const noexcept { return calls_; }
  /// Of all, those that failed included.
  [[nodiscard]] std::uint64_t made() const noexcept { return made_; }
  /// Whether a file was synced again after a sync of it had failed.
  [[nodiscard]] bool synced_after_failure() const noexcept { return synced_after_failure_; }
  void note_saved(std::uint64_t step);

  // For the functions of libc that stand before the kernel's.
  [[nodiscard]] bool concerns(const std::filesystem::path& path) const;
  /// @returns the number of the error that this call fails with; nothing: it is to be made. 0: half of it.
  [[nodiscard]] std::optional<int> fails(const FileCall& call);
  void note(FileCall call) { calls_.push_back(std::move(call)); }

 private:
  std::string below_;
  std::optional<CallFault> fault_;
  std::vector<FileCall> calls_;
  std::vector<std::filesystem::path> failed_syncs_;
  std::uint64_t made_ = 0;
  bool synced_after_failure_ = false;
};

}  // namespace spillway::test
