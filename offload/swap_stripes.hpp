#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <spillway/offload/stripe_map.hpp>
#include <spillway/offload/swap_file.hpp>

namespace spillway::offload {

/// The swap space of a rank: one file in each folder, together one linear space that the map spreads over them. Not
/// thread-safe.
class SwapStripes {
 public:
  /// @throws IoError as SwapFile does.
  SwapStripes(const std::vector<std::string>& folders, const LogSink& log);

  /// How the space is spread; to be set before it grows.
  void set_map(StripeMap map);
  /// Preallocates `bytes` (a multiple of kPageBytes) more, each path its part. @throws OutOfSpace: which folder,
  /// wanted, free, missing; every file keeps its former size.
  void grow(std::uint64_t bytes);

  [[nodiscard]] std::size_t paths() const noexcept { return files_.size(); }
  [[nodiscard]] const SwapFile& file(std::size_t path) const noexcept { return files_[path]; }
  /// The folders that hold the range: "a", or "a and b".
  [[nodiscard]] std::string folders_of(std::uint64_t offset, std::uint64_t bytes) const;

 private:
  std::vector<SwapFile> files_;
  std::optional<StripeMap> map_;
  std::uint64_t size_bytes_ = 0;
};

}  // namespace spillway::offload
