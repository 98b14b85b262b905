#include <spillway/app/checkpoint/tensor_header.hpp>

#include <algorithm>
#include <array>
#include <limits>
#include <optional>
#include <span>
#include <utility>

#include <spillway/app/config/json.hpp>
#include <spillway/app/config/key_names.hpp>
#include <spillway/offload/error.hpp>

namespace spillway::app {
namespace {

struct StoredDtype {
  std::string_view name;
  std::uint64_t bytes;
};
constexpr std::array kStoredDtypes = {
    StoredDtype{"F32", 4}, StoredDtype{"F64", 8}, StoredDtype{"F16", 2}, StoredDtype{"BF16", 2}, StoredDtype{"I64", 8},
    StoredDtype{"I32", 4}, StoredDtype{"I16", 2}, StoredDtype{"I8", 1},  StoredDtype{"U8", 1},   StoredDtype{"BOOL", 1},
};

constexpr std::size_t kLengthBytes = 8;
constexpr std::size_t kAlignment = 64;  // Of the first value, by spaces after the header.
constexpr std::size_t kMaxDimensions = 8;
constexpr JsonLimits kHeaderLimits{.bytes = 16U << 20U, .depth = 4, .members = 1'000'000};
constexpr const char* kMetadata = "__metadata__";

[[noreturn]] void refuse_header(const std::string& label, const std::string& why) {
  throw FormatError(label + ": not a safetensors file: " + why + "; " + std::string(kTakeAnother));
}

std::optional<std::uint64_t> whole(const Json& json) {
  const auto* const value = json.get_if<std::uint64_t>();
  return value == nullptr ? std::nullopt : std::optional(*value);
}

const Json::Array* list_of(const Json& entry, const char* key, std::size_t longest) {
  const Json* const found = entry.find(key);
  const auto* const list = found == nullptr ? nullptr : found->get_if<Json::Array>();
  return list == nullptr || list->size() > longest ? nullptr : list;
}

/// The sizes of a header's entry; nothing where they are none.
std::optional<std::vector<std::int64_t>> sizes_of(const Json& entry) {
  const auto* const list = list_of(entry, "shape", kMaxDimensions);
  if (list == nullptr) return std::nullopt;
  std::vector<std::int64_t> sizes;
  for (const Json& size : *list) {
    const auto value = whole(size);
    if (!value || *value > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) return std::nullopt;
    sizes.push_back(static_cast<std::int64_t>(*value));
  }
  return sizes;
}

StoredTensor tensor_of(const std::string& name, const Json& entry, const std::string& label) {
  const Json* const dtype = entry.find("dtype");
  const auto* const text = dtype == nullptr ? nullptr : dtype->get_if<std::string>();
  auto sizes = sizes_of(entry);
  const auto* const range = list_of(entry, "data_offsets", 2);
  if (text == nullptr || element_bytes(*text) == 0 || !sizes || range == nullptr || range->size() != 2) {
    refuse_header(label, "its entry " + shown_name(name) + " has no dtype, shape and data_offsets that are known");
  }
  const auto begin = whole(range->front());
  const auto end = whole(range->back());
  StoredTensor tensor{name, *text, std::move(*sizes), begin.value_or(0), end.value_or(0)};
  if (!begin || !end || *begin > *end || *end - *begin != bytes_of(tensor)) {
    refuse_header(label, "the bytes of " + shown_name(name) + " are not those of its shape");
  }
  return tensor;
}

/// Nothing between them, nothing twice, nothing after them.
void check_places(const std::vector<StoredTensor>& tensors, std::uint64_t data_bytes, const std::string& label) {
  std::vector<const StoredTensor*> order;
  for (const StoredTensor& tensor : tensors) order.push_back(&tensor);
  std::ranges::sort(order, {}, [](const StoredTensor* tensor) { return std::pair(tensor->begin, tensor->end); });
  std::uint64_t end = 0;
  for (const StoredTensor* const tensor : order) {
    if (tensor->end > data_bytes) {
      refuse_header(label, "the bytes of " + shown_name(tensor->name) + " are not in the file");
    }
    if (tensor->begin != end) {
      refuse_header(label, "the bytes of " + shown_name(tensor->name) + " do not begin where those before them end");
    }
    end = tensor->end;
  }
  if (end != data_bytes) refuse_header(label, "its tensors do not fill it");
}

}  // namespace

std::uint64_t element_bytes(std::string_view dtype) {
  const auto found = std::ranges::find(kStoredDtypes, dtype, &StoredDtype::name);
  return found == kStoredDtypes.end() ? 0 : found->bytes;
}

std::uint64_t bytes_of(const StoredTensor& tensor) {
  std::uint64_t bytes = element_bytes(tensor.dtype);
  if (bytes == 0) {
    throw FormatError("tensor " + shown_name(tensor.name) + ": the dtype " + shown_name(tensor.dtype) +
                      " is not known");
  }
  for (const std::int64_t size : tensor.sizes) {
    if (__builtin_mul_overflow(bytes, static_cast<std::uint64_t>(size), &bytes) || (bytes >> 63U) != 0) {
      throw FormatError("tensor " + shown_name(tensor.name) + " is larger than any file");
    }
  }
  return bytes;
}

std::uint64_t tensor_header_bytes(std::span<const std::byte> start, std::uint64_t file_bytes,
                                  const std::string& label) {
  if (file_bytes < kLengthBytes || start.size() < kLengthBytes) {
    refuse_header(label, "it has " + std::to_string(file_bytes) + " bytes");
  }
  std::uint64_t bytes = 0;
  for (std::size_t i = 0; i < kLengthBytes; ++i) bytes |= std::to_integer<std::uint64_t>(start[i]) << (8 * i);
  if (bytes > file_bytes - kLengthBytes || bytes > kHeaderLimits.bytes) {
    refuse_header(label, "its header is to have " + std::to_string(bytes) + " bytes");
  }
  return bytes;
}

std::vector<StoredTensor> parse_tensor_header(std::string_view json, std::uint64_t data_bytes,
                                              const std::string& label) {
  JsonLimits limits = kHeaderLimits;
  limits.values = 64 + json.size() / 4;  // More than tensors need: memory is a small multiple of the header.
  Json header;
  try {
    header = parse_json(json, label, limits);
  } catch (const ConfigError& error) {
    refuse_header(label, error.what());
  }
  const auto* const object = header.get_if<Json::Object>();
  if (object == nullptr) refuse_header(label, "its header is no object");
  std::vector<StoredTensor> tensors;
  for (const auto& [name, entry] : *object) {
    if (name != kMetadata) tensors.push_back(tensor_of(name, entry, label));
  }
  check_places(tensors, data_bytes, label);
  return tensors;
}

std::string tensor_header_text(const std::vector<StoredTensor>& tensors, const std::string& label) {
  std::vector<std::string_view> names;
  Json::Object header;
  header.reserve(tensors.size());
  std::uint64_t offset = 0;
  for (const StoredTensor& tensor : tensors) {
    names.push_back(tensor.name);
    if (tensor.sizes.size() > kMaxDimensions) {
      throw FormatError(label + ": tensor " + shown_name(tensor.name) + " has too many dimensions");
    }
    Json::Array shape;
    for (const std::int64_t size : tensor.sizes) shape.emplace_back(static_cast<std::uint64_t>(size));
    const std::uint64_t end = offset + bytes_of(tensor);
    header.emplace_back(
        tensor.name,
        Json::Object{{"dtype", tensor.dtype}, {"shape", std::move(shape)}, {"data_offsets", Json::Array{offset, end}}});
    offset = end;
  }
  std::ranges::sort(names);
  if (const auto twice = std::ranges::adjacent_find(names); twice != names.end()) {
    throw FormatError(label + ": two tensors are called " + std::string(*twice));
  }
  std::string text = Json(std::move(header)).dump();
  text.resize((kLengthBytes + text.size() + kAlignment - 1) / kAlignment * kAlignment - kLengthBytes, ' ');
  std::string length;
  for (std::size_t i = 0; i < kLengthBytes; ++i) length += static_cast<char>(text.size() >> (8 * i) & 0xFFU);
  return length + text;
}

TensorHeader read_tensor_header(const InputFile& file) {
  const std::string label = file.path().string();
  std::array<std::byte, kLengthBytes> length{};
  file.read(std::span(length).first(std::min<std::uint64_t>(length.size(), file.bytes())), 0);
  std::string json(tensor_header_bytes(length, file.bytes(), label), '\0');
  file.read(std::as_writable_bytes(std::span(json)), kLengthBytes);
  const std::uint64_t data_start = kLengthBytes + json.size();
  return {data_start, parse_tensor_header(json, file.bytes() - data_start, label)};
}

}  // namespace spillway::app
