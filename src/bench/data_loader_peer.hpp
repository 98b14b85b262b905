#pragma once

#include <cstdint>
#include <string>

#include <spillway/app/bench/peer_process.hpp>

namespace spillway::app {

/// What a DataLoader is made for.
struct DataLoaderJob {
  std::string folder;  ///< Of classes with image files.
  std::uint64_t workers = 2;
  std::uint64_t batch = 64;
  std::uint64_t batches = 4;  ///< That are timed at once.
};

/// torch.utils.data.DataLoader with torchvision's ImageFolder and two views by SimCLR's recipe, 224 pixels a side, in a
/// process of its own that has worker processes.
class DataLoaderPeer {
 public:
  /// Why it can't be run; empty where it can be tried.
  [[nodiscard]] static std::string unavailable(const std::string& peers_folder);
  /// @throws Error, with what it says, if it does not start.
  DataLoaderPeer(const std::string& peers_folder, const DataLoaderJob& job);

  [[nodiscard]] const std::string& name() const noexcept { return process_.name(); }
  /// Images a second over job.batches batches, after as many as may have been ready. @throws Error.
  [[nodiscard]] double rate();

 private:
  PeerProcess process_;
};

}  // namespace spillway::app
