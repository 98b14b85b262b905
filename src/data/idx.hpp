#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <spillway/app/data/image_set.hpp>

namespace spillway::app {

/// Bytes with the name that messages give them.
struct NamedBytes {
  std::span<const std::byte> bytes;
  std::string_view label;
};

/// Parses the IDX files of the MNIST family, already unpacked: unsigned bytes in 3 dimensions, with the labels in 1.
/// The peak is the largest pixel. Allocates no more than the files hold.
/// @throws FormatError: another kind of file, truncated or with bytes left over (wanted and got bytes), no image, or
/// another number of labels than of images.
[[nodiscard]] ImageSet parse_idx(const NamedBytes& images, const NamedBytes& labels);

/// The name of the labels file that belongs to an images file: "train-images-idx3-ubyte.gz" gives
/// "train-labels-idx1-ubyte.gz". Nothing where the name is no such name.
[[nodiscard]] std::optional<std::string> idx_labels_name(std::string_view images_name);

}  // namespace spillway::app
