#include <spillway/app/checkpoint/tensor_file.hpp>

#include <algorithm>
#include <array>
#include <limits>
#include <optional>
#include <span>
#include <utility>

#include <ATen/ops/empty.h>

#include <spillway/app/config/json.hpp>
#include <spillway/offload/check.hpp>
#include <spillway/offload/error.hpp>

namespace spillway::app {
namespace {

struct DtypeName {
  at::ScalarType dtype;
  std::string_view name;
};
constexpr std::array kDtypes = {
    DtypeName{at::kFloat, "F32"},     DtypeName{at::kDouble, "F64"}, DtypeName{at::kHalf, "F16"},
    DtypeName{at::kBFloat16, "BF16"}, DtypeName{at::kLong, "I64"},   DtypeName{at::kInt, "I32"},
    DtypeName{at::kShort, "I16"},     DtypeName{at::kChar, "I8"},    DtypeName{at::kByte, "U8"},
    DtypeName{at::kBool, "BOOL"},
};

constexpr std::size_t kLengthBytes = 8;
constexpr std::size_t kAlignment = 64;  // Of the first value, by spaces after the header.
constexpr JsonLimits kHeaderLimits{.bytes = 64U << 20U, .depth = 4, .members = 1'000'000};

std::string_view name_of(const TensorEntry& entry) {
  const auto found = std::ranges::find(kDtypes, entry.dtype, &DtypeName::dtype);
  if (found == kDtypes.end()) {
    throw Error("tensor " + entry.name + ": safetensors files have no " + c10::toString(entry.dtype));
  }
  return found->name;
}

Json header_of(const std::vector<TensorEntry>& entries) {
  Json::Object header;
  header.reserve(entries.size());
  std::uint64_t offset = 0;
  for (const TensorEntry& entry : entries) {
    Json::Array shape;
    for (const std::int64_t size : entry.sizes) shape.emplace_back(static_cast<std::uint64_t>(size));
    const std::uint64_t end = offset + entry.bytes();
    header.emplace_back(entry.name, Json::Object{{"dtype", name_of(entry)},
                                                 {"shape", std::move(shape)},
                                                 {"data_offsets", Json::Array{offset, end}}});
    offset = end;
  }
  return header;
}

std::array<std::byte, kLengthBytes> little_endian(std::uint64_t value) {
  std::array<std::byte, kLengthBytes> bytes{};
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(value >> (8 * i));
  return bytes;
}

[[noreturn]] void refuse_header(const std::filesystem::path& path, const std::string& why) {
  throw FormatError(path.string() + ": not a safetensors file: " + why + "; " + std::string(kTakeAnother));
}

std::optional<std::uint64_t> whole(const Json* json) {
  const auto* value = json == nullptr ? nullptr : json->get_if<std::uint64_t>();
  return value == nullptr ? std::nullopt : std::optional(*value);
}

/// The sizes of a header's entry; nothing where they are none.
std::optional<std::vector<std::int64_t>> sizes_of(const Json& entry) {
  const Json* const shape = entry.find("shape");
  const auto* const list = shape == nullptr ? nullptr : shape->get_if<Json::Array>();
  if (list == nullptr) return std::nullopt;
  std::vector<std::int64_t> sizes;
  for (const Json& size : *list) {
    const auto value = whole(&size);
    if (!value || *value > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) return std::nullopt;
    sizes.push_back(static_cast<std::int64_t>(*value));
  }
  return sizes;
}

}  // namespace

std::uint64_t TensorEntry::bytes() const {
  std::uint64_t bytes = c10::elementSize(dtype);
  for (const std::int64_t size : sizes) {
    if (__builtin_mul_overflow(bytes, static_cast<std::uint64_t>(size), &bytes) || (bytes >> 63U) != 0) {
      throw Error("tensor " + name + " is larger than any file");
    }
  }
  return bytes;
}

TensorFileWriter::TensorFileWriter(const std::filesystem::path& path, std::vector<TensorEntry> entries)
    : entries_(std::move(entries)), file_(path) {
  std::vector<std::string_view> names;
  for (const TensorEntry& entry : entries_) names.push_back(entry.name);
  std::ranges::sort(names);
  if (const auto twice = std::ranges::adjacent_find(names); twice != names.end()) {
    throw Error(path.string() + ": two tensors are called " + std::string(*twice));
  }
  std::string header = header_of(entries_).dump();
  header.resize((kLengthBytes + header.size() + kAlignment - 1) / kAlignment * kAlignment - kLengthBytes, ' ');
  file_.write(little_endian(header.size()));
  file_.write(header);
}

void TensorFileWriter::append(const at::Tensor& values) {
  const at::Tensor plain = values.detach().contiguous();
  while (current_ < entries_.size() && filled_ == entries_[current_].bytes()) {
    ++current_;
    filled_ = 0;
  }
  if (plain.nbytes() == 0) return;
  SPILLWAY_CHECK(current_ < entries_.size() && plain.scalar_type() == entries_[current_].dtype &&
                     filled_ + plain.nbytes() <= entries_[current_].bytes(),
                 "the values are of another tensor");
  file_.write({static_cast<const std::byte*>(plain.const_data_ptr()), plain.nbytes()});
  filled_ += plain.nbytes();
}

FileDigest TensorFileWriter::finish() {
  while (current_ < entries_.size() && filled_ == entries_[current_].bytes()) {
    ++current_;
    filled_ = 0;
  }
  SPILLWAY_CHECK(current_ == entries_.size(), "a tensor has no values yet");
  return file_.finish();
}

TensorFileReader::TensorFileReader(std::filesystem::path path) : file_(std::move(path)) {
  if (file_.bytes() < kLengthBytes) refuse_header(file_.path(), "it has " + std::to_string(file_.bytes()) + " bytes");
  std::array<std::byte, kLengthBytes> length{};
  file_.read(length, 0);
  std::uint64_t header_bytes = 0;
  for (std::size_t i = 0; i < length.size(); ++i) header_bytes |= std::to_integer<std::uint64_t>(length[i]) << (8 * i);
  if (header_bytes > file_.bytes() - kLengthBytes || header_bytes > kHeaderLimits.bytes) {
    refuse_header(file_.path(), "its header is to have " + std::to_string(header_bytes) + " bytes");
  }
  std::string header(header_bytes, '\0');
  file_.read(std::as_writable_bytes(std::span(header)), kLengthBytes);
  parse(header, kLengthBytes + header_bytes);
}

// Tensors have to fill the rest of the file one after another, which leaves nothing to overlap.
void TensorFileReader::parse(std::string_view header, std::uint64_t data_start) {
  Json json;
  try {
    json = parse_json(header, file_.path().string(), kHeaderLimits);
  } catch (const ConfigError& error) {
    refuse_header(file_.path(), error.what());
  }
  const auto* const object = json.get_if<Json::Object>();
  if (object == nullptr) refuse_header(file_.path(), "its header is no object");
  std::uint64_t total = 0;
  for (const auto& [name, value] : *object) {
    if (name == "__metadata__") continue;
    const Json* const dtype = value.find("dtype");
    const auto* const text = dtype == nullptr ? nullptr : dtype->get_if<std::string>();
    const auto known =
        text == nullptr ? kDtypes.end() : std::ranges::find(kDtypes, std::string_view(*text), &DtypeName::name);
    auto sizes = sizes_of(value);
    const Json* const offsets = value.find("data_offsets");
    const auto* const range = offsets == nullptr ? nullptr : offsets->get_if<Json::Array>();
    if (known == kDtypes.end() || !sizes || range == nullptr || range->size() != 2) {
      refuse_header(file_.path(),
                    "its entry " + name.substr(0, 100) + " has no dtype, shape and data_offsets that are known");
    }
    TensorEntry entry{name, known->dtype, std::move(*sizes)};
    const auto start = whole(&range->front());
    const auto end = whole(&range->back());
    if (!start || !end || *start > *end || *end > file_.bytes() - data_start || *end - *start != entry.bytes()) {
      refuse_header(file_.path(),
                    "the bytes of " + name.substr(0, 100) + " are not those of its shape, or not in the file");
    }
    total += entry.bytes();
    places_.emplace(name, Place{entries_.size(), data_start + *start});
    entries_.push_back(std::move(entry));
  }
  if (total != file_.bytes() - data_start) refuse_header(file_.path(), "its tensors do not fill it");
}

const TensorEntry* TensorFileReader::find(std::string_view name) const {
  const auto found = places_.find(std::string(name));
  return found == places_.end() ? nullptr : &entries_[found->second.entry];
}

at::Tensor TensorFileReader::read(std::string_view name) const {
  const auto found = places_.find(std::string(name));
  if (found == places_.end()) return {};
  const TensorEntry& entry = entries_[found->second.entry];
  return read_at(entry, entry.sizes, found->second.offset);
}

at::Tensor TensorFileReader::read_rows(std::string_view name, std::int64_t first, std::int64_t count) const {
  const auto found = places_.find(std::string(name));
  SPILLWAY_CHECK(found != places_.end(), "the tensor is in the file");
  const TensorEntry& entry = entries_[found->second.entry];
  SPILLWAY_CHECK(first >= 0 && count >= 0 && first + count <= entry.sizes.at(0), "the tensor has these rows");
  std::vector<std::int64_t> sizes = entry.sizes;
  const std::uint64_t row_bytes = sizes[0] == 0 ? 0 : entry.bytes() / static_cast<std::uint64_t>(sizes[0]);
  sizes[0] = count;
  return read_at(entry, std::move(sizes), found->second.offset + static_cast<std::uint64_t>(first) * row_bytes);
}

at::Tensor TensorFileReader::read_at(const TensorEntry& like, std::vector<std::int64_t> sizes,
                                     std::uint64_t offset) const {
  at::Tensor tensor = at::empty(sizes, at::TensorOptions(like.dtype));
  file_.read({static_cast<std::byte*>(tensor.mutable_data_ptr()), tensor.nbytes()}, offset);
  return tensor;
}

}  // namespace spillway::app
