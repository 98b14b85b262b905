#pragma once

#include <cstddef>
#include <span>

namespace spillway::test {

/// Each of these feeds bytes to a parser and returns whether they were accepted. Whatever the bytes, there are two
/// outcomes: the parser's own error, with a message of sane length, or a result that is consistent and gives the same
/// result again when it is written out and parsed.
/// @throws std::logic_error where that promise is broken; anything else that escapes breaks it too.

/// A configuration; what follows a zero byte is an assignment, as after --set.
bool keeps_config_promise(std::span<const std::byte> input);
/// A CSV file.
bool keeps_csv_promise(std::span<const std::byte> input);
/// A gzip file.
bool keeps_gzip_promise(std::span<const std::byte> input);
/// A JPEG or PNG file, of up to a million pixels; its first byte says by how much it shrinks.
bool keeps_image_promise(std::span<const std::byte> input);
/// Two bytes of length, most significant first, an IDX file of images of that length, and one of labels.
bool keeps_idx_promise(std::span<const std::byte> input);
/// A checkpoint's manifest.json, with the hash that ends it or without.
bool keeps_manifest_promise(std::span<const std::byte> input);
/// A safetensors file.
bool keeps_tensors_promise(std::span<const std::byte> input);

}  // namespace spillway::test
