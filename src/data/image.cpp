#include <spillway/app/data/image.hpp>

#include <algorithm>
#include <cstddef>
#include <utility>

namespace spillway::app {

Image oriented(Image image, Orientation orientation) {
  if (orientation == Orientation::kUpright) return image;
  using enum Orientation;
  // Where the first pixel that is shown lies in what is stored, and how one gets on from there.
  const bool from_right = orientation == kMirrored || orientation == kUpsideDown || orientation == kTransversed ||
                          orientation == kTurnedLeft;
  const bool from_below = orientation == kUpsideDown || orientation == kFlipped || orientation == kTransversed ||
                          orientation == kTurnedRight;
  const bool swapped = swaps_sides(orientation);
  Image shown{swapped ? image.height : image.width, swapped ? image.width : image.height, image.channels, {}};
  shown.pixels.resize(image.pixels.size());
  std::size_t to = 0;
  for (std::uint32_t row = 0; row < shown.height; ++row) {
    for (std::uint32_t column = 0; column < shown.width; ++column) {
      const std::uint32_t x = swapped ? row : column;
      const std::uint32_t y = swapped ? column : row;
      const std::size_t source_x = from_right ? image.width - 1 - x : x;
      const std::size_t source_y = from_below ? image.height - 1 - y : y;
      const std::size_t from = (source_y * image.width + source_x) * image.channels;
      for (std::uint32_t channel = 0; channel < image.channels; ++channel) {
        shown.pixels[to++] = image.pixels[from + channel];
      }
    }
  }
  return shown;
}

Image with_channels(Image image, std::uint32_t channels) {
  if (image.channels == channels) return image;
  const std::size_t count = std::size_t{image.width} * image.height;
  Image other{image.width, image.height, channels, std::vector<std::uint8_t>(count * channels)};
  for (std::size_t index = 0; index < count; ++index) {
    if (channels == 3) {
      std::fill_n(other.pixels.begin() + static_cast<std::ptrdiff_t>(3 * index), 3, image.pixels[index]);
    } else {
      const std::uint8_t* const rgb = image.pixels.data() + 3 * index;
      other.pixels[index] = luma(rgb[0], rgb[1], rgb[2]);
    }
  }
  return other;
}

}  // namespace spillway::app
