#include <spillway/app/data/idx.hpp>

#include <algorithm>
#include <array>

#include <spillway/offload/error.hpp>

namespace spillway::app {
namespace {

constexpr std::uint32_t kUnsignedBytes = 8;
constexpr std::uint32_t kMaxSide = 1U << 16U;

std::uint32_t big_endian(std::span<const std::byte> bytes, std::size_t offset) {
  std::uint32_t value = 0;
  for (const std::byte byte : bytes.subspan(offset, 4)) {
    value = value << 8U | std::to_integer<std::uint32_t>(byte);
  }
  return value;
}

struct IdxArray {
  std::array<std::uint32_t, 3> sizes = {1, 1, 1};
  std::span<const std::byte> values;
};

[[noreturn]] void fail(const NamedBytes& file, const std::string& what) {
  throw FormatError(std::string(file.label) + ": " + what);
}

IdxArray read_array(const NamedBytes& file, std::uint32_t dimensions) {
  const std::size_t header = 4 + 4 * std::size_t{dimensions};
  const std::uint32_t wanted_magic = kUnsignedBytes << 8U | dimensions;
  if (file.bytes.size() < header) {
    fail(file, "truncated: wanted " + std::to_string(header) + " bytes of header, got " +
                   std::to_string(file.bytes.size()) + "; copy or download it again");
  }
  if (const std::uint32_t magic = big_endian(file.bytes, 0); magic != wanted_magic) {
    fail(file, "no IDX file of unsigned bytes in " + std::to_string(dimensions) + " dimension(s): it begins with " +
                   std::to_string(magic) + ", wanted " + std::to_string(wanted_magic));
  }
  IdxArray array;
  std::uint64_t total = 1;
  for (std::uint32_t dimension = 0; dimension < dimensions; ++dimension) {
    array.sizes[dimension] = big_endian(file.bytes, 4 + 4 * std::size_t{dimension});
    // The first is a count of up to 2^32; the sides are bounded, so that the product fits.
    if (dimension > 0 && array.sizes[dimension] > kMaxSide) {
      fail(file, "an image side of " + std::to_string(array.sizes[dimension]) + " pixels; at most " +
                     std::to_string(kMaxSide) + " are supported");
    }
    total *= array.sizes[dimension];
  }
  array.values = file.bytes.subspan(header);
  if (total > array.values.size()) {
    fail(file, "truncated: its header promises " + std::to_string(total) + " bytes of content, got " +
                   std::to_string(array.values.size()) + "; copy or download it again");
  }
  if (total < array.values.size()) {
    fail(file, std::to_string(array.values.size() - total) + " bytes more than the " + std::to_string(total) +
                   " that its header promises; this is another kind of file, or damaged");
  }
  return array;
}

}  // namespace

ImageSet parse_idx(const NamedBytes& images, const NamedBytes& labels) {
  const IdxArray pixels = read_array(images, 3);
  const IdxArray classes = read_array(labels, 1);
  if (pixels.sizes[0] != classes.sizes[0]) {
    fail(labels, std::to_string(classes.sizes[0]) + " labels for the " + std::to_string(pixels.sizes[0]) +
                     " images of " + std::string(images.label) + "; the two files don't belong together");
  }
  if (pixels.values.empty()) {
    fail(images, "no image in it");
  }
  ImageSet set;
  set.height = pixels.sizes[1];
  set.width = pixels.sizes[2];
  const auto to_byte = [](std::byte byte) { return std::to_integer<std::uint8_t>(byte); };
  set.pixels.resize(pixels.values.size());
  std::ranges::transform(pixels.values, set.pixels.begin(), to_byte);
  set.labels.resize(classes.values.size());
  std::ranges::transform(classes.values, set.labels.begin(), to_byte);
  set.peak = std::max<std::uint8_t>(1, std::ranges::max(set.pixels));
  return set;
}

std::optional<std::string> idx_labels_name(std::string_view images_name) {
  constexpr std::string_view kImages = "images";
  constexpr std::string_view kRank3 = "idx3";
  std::string name(images_name);
  const std::size_t images = name.find(kImages);
  const std::size_t rank = name.find(kRank3);
  if (images == std::string::npos || rank == std::string::npos || rank < images) {
    return std::nullopt;
  }
  name.replace(rank, kRank3.size(), "idx1");
  name.replace(images, kImages.size(), "labels");
  return name;
}

}  // namespace spillway::app
