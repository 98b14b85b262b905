#include <spillway/offload/swap_stripes.hpp>

#include <utility>

#include <spillway/offload/check.hpp>
#include <spillway/offload/error.hpp>
#include <spillway/offload/tier.hpp>

namespace spillway::offload {

SwapStripes::SwapStripes(const std::vector<std::string>& folders, const LogSink& log) {
  for (const std::string& folder : folders) {
    files_.emplace_back(folder, log);
  }
}

void SwapStripes::set_map(StripeMap map) {
  SPILLWAY_CHECK(size_bytes_ == 0, "space that is in use is spread anew");
  SPILLWAY_CHECK(map.paths() == files_.size(), "the map spreads the space over every path");
  map_ = std::move(map);
}

void SwapStripes::grow(std::uint64_t bytes) {
  SPILLWAY_CHECK(map_.has_value(), "the space grows before it is known how it is spread");
  std::size_t path = 0;
  try {
    for (; path < files_.size(); ++path) {
      const std::uint64_t wanted = map_->path_bytes(path, size_bytes_ + bytes);
      if (wanted > files_[path].size_bytes()) {
        files_[path].grow(wanted - files_[path].size_bytes());
      }
    }
  } catch (const IoError&) {
    for (std::size_t grown = 0; grown < path; ++grown) {
      files_[grown].shrink(map_->path_bytes(grown, size_bytes_));
    }
    throw;
  }
  size_bytes_ += bytes;
}

std::string SwapStripes::folders_of(std::uint64_t offset, std::uint64_t bytes) const {
  std::vector<bool> holds(files_.size(), false);
  for (std::uint64_t at = offset; at < offset + bytes;) {
    const StripeMap::Place place = map_->place(at);
    holds[place.path] = true;
    at += place.bytes;
  }
  std::string text;
  for (std::size_t path = 0; path < files_.size(); ++path) {
    if (holds[path]) {
      text += (text.empty() ? "" : " and ") + files_[path].folder();
    }
  }
  return text;
}

}  // namespace spillway::offload
