#include <spillway/app/data/cifar.hpp>

#include <cstddef>
#include <string>

#include <spillway/offload/error.hpp>

namespace spillway::app {
namespace {

constexpr std::uint32_t kCifarSide = 32;
constexpr std::size_t kCifarPixels = std::size_t{3} * kCifarSide * kCifarSide;

void append_cifar(ImageSet& set, const NamedBytes& file, std::size_t label_bytes, unsigned classes) {
  const std::size_t record = label_bytes + kCifarPixels;
  if (file.bytes.empty() || file.bytes.size() % record != 0) {
    throw FormatError(std::string(file.label) + ": " + std::to_string(file.bytes.size()) +
                      " bytes are no whole number of images of " + std::to_string(record) +
                      " bytes; copy or download it again");
  }
  const auto* const bytes = reinterpret_cast<const std::uint8_t*>(file.bytes.data());
  for (std::size_t at = 0; at < file.bytes.size(); at += record) {
    const unsigned label = bytes[at + label_bytes - 1];
    if (label >= classes) {
      throw FormatError(std::string(file.label) + ": image " + std::to_string(at / record) + " has label " +
                        std::to_string(label) + ", there are " + std::to_string(classes) +
                        " classes; this is another kind of file, or damaged");
    }
    set.labels.push_back(static_cast<std::uint16_t>(label));
    set.pixels.insert(set.pixels.end(), bytes + at + label_bytes, bytes + at + record);
  }
}

}  // namespace

ImageSet parse_cifar(std::span<const NamedBytes> files, CifarKind kind) {
  ImageSet set{.width = kCifarSide, .height = kCifarSide};
  set.channels = 3;
  const bool ten = kind == CifarKind::kTen;
  for (const NamedBytes& file : files) append_cifar(set, file, ten ? 1 : 2, ten ? 10 : 100);
  return set;
}

}  // namespace spillway::app
