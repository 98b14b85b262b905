#include <spillway/app/bench/photo_files.hpp>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <fstream>
#include <string>
#include <vector>

#include <spillway/app/data/counter_rng.hpp>
#include <spillway/app/data/jpeg_file.hpp>
#include <spillway/offload/error.hpp>

namespace spillway::app {
namespace {

constexpr std::uint32_t kPhotoPurpose = 0x50000000U;
constexpr std::uint32_t kPhotoWidth = 500;
constexpr std::uint32_t kPhotoHeight = 375;
constexpr int kPhotoQuality = 90;

/// Adds a grid of random values, interpolated, whose cells have that many pixels.
void add_octave(std::vector<float>& plane, std::uint32_t width, std::uint32_t cell, float weight, CounterRng& rng) {
  const auto height = static_cast<std::uint32_t>(plane.size() / width);
  const std::uint32_t columns = width / cell + 2;
  std::vector<float> grid(std::size_t{columns} * (height / cell + 2));
  for (float& value : grid) value = rng.uniform(-weight, weight);
  for (std::uint32_t y = 0; y < height; ++y) {
    const float down = static_cast<float>(y % cell) / static_cast<float>(cell);
    const float* const upper = grid.data() + std::size_t{y / cell} * columns;
    for (std::uint32_t x = 0; x < width; ++x) {
      const float right = static_cast<float>(x % cell) / static_cast<float>(cell);
      const float* const at = upper + x / cell;
      plane[std::size_t{y} * width + x] += (1.0F - down) * ((1.0F - right) * at[0] + right * at[1]) +
                                           down * ((1.0F - right) * at[columns] + right * at[columns + 1]);
    }
  }
}

}  // namespace

Image make_photo(std::uint32_t width, std::uint32_t height, std::uint32_t number) {
  CounterRng rng({.seed = 0, .purpose = kPhotoPurpose, .sample = number});
  Image image{width, height, 3, std::vector<std::uint8_t>(std::size_t{3} * width * height)};
  for (std::size_t channel = 0; channel < 3; ++channel) {
    std::vector<float> plane(std::size_t{width} * height, 128.0F);
    for (const std::uint32_t cell : {128U, 32U, 8U, 2U}) {
      add_octave(plane, width, cell, 12.0F + 0.5F * static_cast<float>(cell), rng);
    }
    for (std::size_t i = 0; i < plane.size(); ++i) {
      image.pixels[3 * i + channel] = static_cast<std::uint8_t>(std::lround(std::clamp(plane[i], 0.0F, 255.0F)));
    }
  }
  return image;
}

void write_photos(const std::filesystem::path& folder, std::uint32_t count) {
  std::filesystem::create_directories(folder / "class");
  for (std::uint32_t number = 0; number < count; ++number) {
    const std::vector<std::byte> bytes = encode_jpeg(make_photo(kPhotoWidth, kPhotoHeight, number), kPhotoQuality);
    const std::filesystem::path path = folder / "class" / (std::to_string(number) + ".jpg");
    std::ofstream file(path, std::ios::binary);
    file.write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
    file.flush();
    if (!file) {
      throw IoError(
          {.operation = "write", .path = path.string(), .bytes = bytes.size(), .error_number = errno, .advice = {}});
    }
  }
}

}  // namespace spillway::app
