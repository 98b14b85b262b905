#include <spillway/app/data/exif.hpp>

#include <cstdint>
#include <optional>

namespace spillway::app {
namespace {

constexpr std::uint32_t kOrientationTag = 0x0112;
constexpr std::uint32_t kShort = 3;
constexpr std::size_t kEntryBytes = 12;

class TiffBytes {
 public:
  TiffBytes(std::span<const std::byte> bytes, bool little) noexcept : bytes_(bytes), little_(little) {}

  [[nodiscard]] std::optional<std::uint32_t> number(std::size_t offset, std::size_t width) const noexcept {
    if (offset > bytes_.size() || bytes_.size() - offset < width) return std::nullopt;
    std::uint32_t value = 0;
    for (std::size_t i = 0; i < width; ++i) {
      value = value << 8U | std::to_integer<std::uint32_t>(bytes_[offset + (little_ ? width - 1 - i : i)]);
    }
    return value;
  }

 private:
  std::span<const std::byte> bytes_;
  bool little_;
};

}  // namespace

Orientation exif_orientation(std::span<const std::byte> tiff) noexcept {
  const bool little = !tiff.empty() && tiff[0] == std::byte{'I'};
  const TiffBytes bytes(tiff, little);
  if (bytes.number(0, 2) != (little ? 0x4949U : 0x4D4DU) || bytes.number(2, 2) != 42U) return Orientation::kUpright;
  const std::optional<std::uint32_t> directory = bytes.number(4, 4);
  const std::optional<std::uint32_t> entries = directory ? bytes.number(*directory, 2) : std::nullopt;
  for (std::uint32_t entry = 0; entry < entries.value_or(0); ++entry) {
    const std::size_t at = std::size_t{*directory} + 2 + kEntryBytes * entry;
    if (bytes.number(at, 2) != kOrientationTag || bytes.number(at + 2, 2) != kShort) continue;
    const std::uint32_t value = bytes.number(at + 8, 2).value_or(1);
    return value >= 1 && value <= 8 ? static_cast<Orientation>(value) : Orientation::kUpright;
  }
  return Orientation::kUpright;
}

}  // namespace spillway::app
