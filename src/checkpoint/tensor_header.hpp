#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <spillway/app/checkpoint/durable_file.hpp>

namespace spillway::app {

/// A tensor of a safetensors file, as its header describes it.
struct StoredTensor {
  std::string name;
  std::string dtype;                ///< As the format spells it: F32, BF16, I64, …
  std::vector<std::int64_t> sizes;  ///< Each at least 0.
  std::uint64_t begin = 0;          ///< Of its values, from the end of the header on.
  std::uint64_t end = 0;
  bool operator==(const StoredTensor&) const = default;
};

/// The header of a safetensors file. Source: the format's description at https://github.com/huggingface/safetensors.
struct TensorHeader {
  std::uint64_t data_start = 0;       ///< In the file: the header's end.
  std::vector<StoredTensor> tensors;  ///< In the order of the header.
};

/// Bytes of an element; 0 for a dtype that is not known.
[[nodiscard]] std::uint64_t element_bytes(std::string_view dtype);

/// Of a tensor. @throws FormatError where they are more than 2^63, or the dtype is not known.
[[nodiscard]] std::uint64_t bytes_of(const StoredTensor& tensor);

/// What the first 8 bytes of a file say of its header's size, which the file has room for.
/// @throws FormatError where it has not, or a header of that size is none of tensors.
[[nodiscard]] std::uint64_t tensor_header_bytes(std::span<const std::byte> start, std::uint64_t file_bytes,
                                                const std::string& label);

/// A header's JSON. @param data_bytes  What follows it in the file: tensors have to fill that one after another, in
/// whatever order the header names them, without a gap and without overlap. @param label  Names the file in messages.
/// @throws FormatError for a header that the format does not allow.
[[nodiscard]] std::vector<StoredTensor> parse_tensor_header(std::string_view json, std::uint64_t data_bytes,
                                                            const std::string& label);

/// The start of a file with these tensors, of which names, dtypes and sizes count: length, JSON, and spaces so that
/// the values begin at a multiple of 64 bytes. Values follow in this order.
/// @throws FormatError for a name that stands there twice, more than 8 dimensions, and as bytes_of.
[[nodiscard]] std::string tensor_header_text(const std::vector<StoredTensor>& tensors, const std::string& label);

/// Checks the whole header against the file's size before anything of a size that it gives is allocated.
/// @throws IoError; FormatError.
[[nodiscard]] TensorHeader read_tensor_header(const InputFile& file);

}  // namespace spillway::app
