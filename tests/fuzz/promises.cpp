#include "promises.hpp"

#include <algorithm>
#include <array>
#include <cstdio>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <spillway/app/checkpoint/manifest.hpp>
#include <spillway/app/checkpoint/tensor_header.hpp>
#include <spillway/app/config/load_config.hpp>
#include <spillway/app/data/csv.hpp>
#include <spillway/app/data/decode.hpp>
#include <spillway/app/data/gzip.hpp>
#include <spillway/app/data/idx.hpp>
#include <spillway/offload/checksum.hpp>
#include <spillway/offload/error.hpp>

namespace spillway::test {
namespace {

constexpr std::size_t kSaneMessage = 1000;

void require(bool kept, const char* promise) {
  if (!kept) {
    throw std::logic_error(promise);
  }
}

/// Runs `parse`; false if it threw the error that it may throw.
template <typename ExpectedError, typename Parse>
bool accepted(const Parse& parse) {
  try {
    parse();
    return true;
  } catch (const ExpectedError& error) {
    const std::string_view message = error.what();
    require(!message.empty() && message.size() <= kSaneMessage, "a message of sane length");
    return false;
  }
}

std::string_view as_text(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

void require_consistent(const app::ImageSet& set) {
  require(set.size() > 0 && set.image_numel() > 0, "at least one image of at least one pixel");
  require(set.pixels.size() == std::size_t{set.size()} * set.image_numel(), "as many pixels as sizes say");
  require(set.peak == std::max<std::uint8_t>(1, std::ranges::max(set.pixels)), "the peak is the largest pixel");
  require(app::class_count(set) <= app::kMaxLabel + 1, "labels in range");
}

std::string to_csv(const app::ImageSet& set) {
  std::string text;
  for (std::uint32_t index = 0; index < set.size(); ++index) {
    for (const std::uint8_t pixel : set.image(index)) {
      text += std::to_string(pixel) + ",";
    }
    text += std::to_string(set.labels[index]) + "\n";
  }
  return text;
}

void append_big_endian(std::string& bytes, std::uint32_t value) {
  for (const unsigned shift : {24U, 16U, 8U, 0U}) {
    bytes += static_cast<char>(value >> shift & 0xFFU);
  }
}

std::string to_idx_images(const app::ImageSet& set) {
  std::string bytes = {0, 0, 8, 3};
  append_big_endian(bytes, set.size());
  append_big_endian(bytes, set.height);
  append_big_endian(bytes, set.width);
  return bytes.append(set.pixels.begin(), set.pixels.end());
}

std::string to_idx_labels(const app::ImageSet& set) {
  std::string bytes = {0, 0, 8, 1};
  append_big_endian(bytes, set.size());
  std::ranges::transform(set.labels, std::back_inserter(bytes),
                         [](std::uint16_t label) { return static_cast<char>(label); });
  return bytes;
}

/// The text with the last line that makes a manifest of what is before it.
std::string sealed(std::string_view text) {
  std::array<char, 17> hash{};
  std::snprintf(hash.data(), hash.size(), "%016llx",
                static_cast<unsigned long long>(offload::xxh3_64(std::as_bytes(std::span(text)))));
  return std::string(text) + ",\n  \"xxh3\": \"" + hash.data() + "\"\n}\n";
}

bool keeps_manifest_promise(std::string_view text) {
  return accepted<Error>([&] {
    const app::Manifest manifest = app::parse_manifest(text, "input");
    for (const app::CheckpointFile& file : manifest.files) {
      require(file.name.find('/') == file.name.npos && file.name.front() != '.', "names inside of the folder");
      for (const app::FilePart& part : file.digest.parts) {
        require(part.end <= file.digest.bytes, "parts inside of the file");
      }
    }
    const std::string written = app::manifest_text(manifest);
    require(app::parse_manifest(written, "written") == manifest, "a written manifest gives itself");
  });
}

}  // namespace

bool keeps_config_promise(std::span<const std::byte> input) {
  const std::string_view text = as_text(input);
  const std::size_t zero = std::min(text.find('\0'), text.size());
  return accepted<ConfigError>([&] {
    std::vector<app::Override> overrides;
    if (zero < text.size()) {
      overrides.push_back(app::parse_override(text.substr(zero + 1)));
    }
    const app::ResolvedConfig resolved = app::load_config({.text = text.substr(0, zero), .overrides = overrides});
    const std::string written = app::to_json(resolved.config).dump(2);
    try {
      const app::ResolvedConfig again = app::load_config({.text = written, .strict = true});
      require(again.config == resolved.config, "a written configuration gives itself");
      require(again.warnings.empty(), "a written configuration gives no warning");
    } catch (const ConfigError& error) {
      throw std::logic_error(std::string("a written configuration is refused: ") + error.what());
    }
  });
}

bool keeps_csv_promise(std::span<const std::byte> input) {
  return accepted<FormatError>([&] {
    const app::ImageSet set = app::parse_csv(as_text(input), "input");
    require_consistent(set);
    require(set.pixels.size() + set.labels.size() <= input.size(), "every value takes a character at least");
    require(app::parse_csv(to_csv(set), "written") == set, "written images give themselves");
  });
}

bool keeps_gzip_promise(std::span<const std::byte> input) {
  return accepted<FormatError>([&] {
    require(app::gunzip(input, "input").size() <= input.size() * app::kGzipMaxRatio, "no more than the ratio allows");
  });
}

bool keeps_image_promise(std::span<const std::byte> input) {
  if (input.empty()) return false;
  constexpr std::uint64_t kPixels = 1'000'000;
  const app::DecodeOptions options{.shrink = 1U << (std::to_integer<unsigned>(input[0]) % 4), .max_pixels = kPixels};
  const std::span<const std::byte> file = input.subspan(1);
  return accepted<FormatError>([&] {
    const app::ImageHeader header = app::read_image_header(file, "input", options);
    const app::Image image = app::decode_image(file, "input", options);
    const std::uint32_t shrink = header.shrinks ? options.shrink : 1;
    require(image.width == (header.width + shrink - 1) / shrink, "the width that the header says");
    require(image.height == (header.height + shrink - 1) / shrink, "the height that the header says");
    require(image.channels == header.channels, "the channels that the header says");
    require(image.pixels.size() == std::size_t{image.width} * image.height * image.channels,
            "as many pixels as sizes say");
    require(app::decode_image(file, "input", options) == image, "the same pixels each time");
  });
}

bool keeps_idx_promise(std::span<const std::byte> input) {
  constexpr std::size_t kLength = 2;
  if (input.size() < kLength) {
    return false;
  }
  const std::size_t wanted = std::to_integer<std::size_t>(input[0]) << 8U | std::to_integer<std::size_t>(input[1]);
  const std::size_t length = std::min(wanted, input.size() - kLength);
  const std::span<const std::byte> images = input.subspan(kLength, length);
  const std::span<const std::byte> labels = input.subspan(kLength + length);
  return accepted<FormatError>([&] {
    const app::ImageSet set = app::parse_idx({images, "images"}, {labels, "labels"});
    require_consistent(set);
    require(to_idx_images(set) == as_text(images) && to_idx_labels(set) == as_text(labels), "files give themselves");
  });
}

bool keeps_manifest_promise(std::span<const std::byte> input) {
  const std::string_view text = as_text(input);
  const bool as_it_is = keeps_manifest_promise(text);
  return keeps_manifest_promise(sealed(text)) || as_it_is;  // Nobody guesses a hash.
}

bool keeps_tensors_promise(std::span<const std::byte> input) {
  constexpr std::size_t kLength = 8;
  return accepted<FormatError>([&] {
    const std::uint64_t bytes = app::tensor_header_bytes(input, input.size(), "input");
    const std::uint64_t data = input.size() - kLength - bytes;
    std::vector<app::StoredTensor> tensors =
        app::parse_tensor_header(as_text(input.subspan(kLength, bytes)), data, "input");
    std::ranges::stable_sort(tensors, {}, [](const app::StoredTensor& of) { return std::pair(of.begin, of.end); });
    std::uint64_t end = 0;
    for (const app::StoredTensor& tensor : tensors) {
      require(tensor.begin == end && tensor.end - tensor.begin == app::bytes_of(tensor), "one after another");
      end = tensor.end;
    }
    require(end == data, "tensors fill the file");
    const std::string written = app::tensor_header_text(tensors, "written");
    require(written.size() % 64 == 0, "values begin at a multiple of 64 bytes");
    const std::uint64_t again =
        app::tensor_header_bytes(std::as_bytes(std::span(written)), written.size() + data, "written");
    require(again == written.size() - kLength, "the length is that of what follows");
    require(app::parse_tensor_header(std::string_view(written).substr(kLength), data, "written") == tensors,
            "a written header gives itself");
  });
}

}  // namespace spillway::test
