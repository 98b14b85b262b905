#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include <ATen/core/Tensor.h>

#include <spillway/app/checkpoint/durable_file.hpp>
#include <spillway/app/checkpoint/tensor_header.hpp>
#include <spillway/offload/unique_fd.hpp>

namespace spillway::app {

/// A tensor of a file, without its values.
struct TensorEntry {
  std::string name;
  at::ScalarType dtype = at::kFloat;
  std::vector<std::int64_t> sizes;

  /// @throws FormatError where they are more than 2^63, or the format has no such dtype.
  [[nodiscard]] std::uint64_t bytes() const;
};

/// Writes a safetensors file: what is in it is said first, then the values follow in that order, in pieces of any
/// size, so that no more than one piece is in memory. Its digest has a part for the header and one for each tensor.
/// Not thread-safe.
class TensorFileWriter {
 public:
  /// @throws IoError; FormatError for a dtype that the format has not, or a name that stands there twice.
  TensorFileWriter(const std::filesystem::path& path, std::vector<TensorEntry> entries);
  /// The next values, of one entry: a tensor on the CPU of its dtype, in logical order.
  /// Precondition: the entry has room for it. @throws IoError.
  void append(const at::Tensor& values);
  /// Precondition: every entry is full. @throws IoError.
  FileDigest finish();

 private:
  void pass_full_entries();

  std::vector<TensorEntry> entries_;
  std::size_t current_ = 0;   // Entry that is being filled,
  std::uint64_t filled_ = 0;  // and its bytes so far.
  DurableFile file_;
};

/// Reads a safetensors file, a tensor at a time. The whole header is checked against the file's size before anything of
/// a size that it gives is allocated. Not thread-safe.
class TensorFileReader {
 public:
  /// @throws IoError; FormatError for a header that the format does not allow.
  explicit TensorFileReader(std::filesystem::path path);
  [[nodiscard]] const std::vector<TensorEntry>& entries() const noexcept { return entries_; }
  [[nodiscard]] bool has(std::string_view name) const { return places_.count(std::string(name)) != 0; }
  /// A new tensor on the CPU; undefined where the file has none of that name. @throws IoError.
  [[nodiscard]] at::Tensor read(std::string_view name) const;
  /// `count` rows of it from row `first` on. Precondition: it has them. @throws IoError.
  [[nodiscard]] at::Tensor read_rows(std::string_view name, std::int64_t first, std::int64_t count) const;
  /// `count` elements of it from element `first` on, in the order of the file: [count]. Precondition: it has them.
  /// @throws IoError.
  [[nodiscard]] at::Tensor read_elements(std::string_view name, std::int64_t first, std::int64_t count) const;
  /// The entry of that name, null where there is none.
  [[nodiscard]] const TensorEntry* find(std::string_view name) const;

 private:
  struct Place {
    std::size_t entry = 0;
    std::uint64_t offset = 0;  // In the file.
  };
  [[nodiscard]] at::Tensor read_at(const TensorEntry& like, std::vector<std::int64_t> sizes,
                                   std::uint64_t offset) const;

  InputFile file_;
  std::vector<TensorEntry> entries_;
  std::unordered_map<std::string, Place> places_;
};

}  // namespace spillway::app
