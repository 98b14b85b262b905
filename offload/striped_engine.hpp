#pragma once

#include <condition_variable>
#include <cstddef>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include <spillway/offload/storage_engine.hpp>
#include <spillway/offload/stripe_map.hpp>
#include <spillway/offload/transfer.hpp>

namespace spillway::offload {

/// Several engines as one, each the engine of one path. A request is cut at the bounds of the stripe units and each
/// piece moved by the engine of the path that the map names; it ends when all its pieces have. The first failure of
/// any of them poisons the whole, as with any engine.
class StripedEngine final : public StorageEngine {
 public:
  /// @param paths  one engine for each path of the map.
  StripedEngine(std::vector<std::unique_ptr<StorageEngine>> paths, StripeMap map);
  /// Drains.
  ~StripedEngine() override;

  /// A file that is made of one file on each path, as the map spreads it.
  struct Part {
    int fd;
    std::string label;
  };
  [[nodiscard]] FileId register_parts(std::vector<Part> parts);
  /// One file, whose units are moved by the engines in turn; its offsets are what they are.
  [[nodiscard]] FileId register_file(int fd, std::string label) override;

  void register_memory(std::span<std::byte> memory) override;
  void unregister_memory(std::span<std::byte> memory) noexcept override;
  /// A failure names the path that failed and the offset there, and carries the offset in the whole. A wait that times
  /// out names a path that has not ended its piece.
  [[nodiscard]] Ticket submit(const IoRequest& request, std::span<const Ticket> after = {}) override;
  void expedite(const Ticket& ticket) override;
  void drain(std::chrono::milliseconds deadline) override;
  [[nodiscard]] EngineInfo info() const override;

 private:
  struct File {
    std::vector<FileId> ids;          // One for each path.
    std::vector<std::string> labels;  // The same; or one for all where the file is not in parts.
    [[nodiscard]] bool in_parts(const StripeMap& map) const noexcept {
      return labels.size() == map.paths() && map.paths() > 1;
    }
  };
  struct Piece {
    std::size_t path;
    IoRequest io;
    Ticket ticket;
  };
  struct Split {
    std::shared_ptr<RequestState> state;
    std::vector<Ticket> after;
    std::vector<Piece> pieces;
    std::size_t unended = 0;  // Pieces, and one more until all are submitted.
    FailurePtr failure;
  };
  using SplitPtr = std::shared_ptr<Split>;

  [[nodiscard]] SplitPtr open(const IoRequest& request, std::span<const Ticket> after);
  [[nodiscard]] std::vector<Piece> cut(const IoRequest& request, const File& file) const;
  void start(const SplitPtr& split, Piece& piece);
  void piece_ended(const SplitPtr& split, std::size_t path, const FailurePtr& failure);
  void end_if_last(const SplitPtr& split, std::unique_lock<std::mutex> lock);
  [[nodiscard]] FailurePtr in_the_whole(std::size_t path, const FailurePtr& failure) const;

  const StripeMap map_;
  mutable std::mutex mutex_;
  std::condition_variable idle_;
  std::vector<File> files_;
  std::unordered_map<const RequestState*, SplitPtr> open_;
  FailurePtr failure_;                                 // The first; set once.
  std::vector<std::unique_ptr<StorageEngine>> paths_;  // Last: their threads use all of the above.
};

}  // namespace spillway::offload
