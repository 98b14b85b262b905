#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <vector>

namespace spillway::test {

/// A tensor in a golden file: its bytes as they are stored, little-endian, row-major.
struct GoldenTensor {
  std::string dtype;  ///< As safetensors spells it: F64, F32, F16, BF16, I64, BOOL.
  std::vector<std::int64_t> shape;
  std::span<const std::byte> bytes;  ///< Part of the file that it was taken from, which outlives it.
};

/// A golden file in safetensors format (u64 header length, JSON header, data), read whole. Expected values in it were
/// computed in float64 with fixed seeds.
class GoldenFile {
 public:
  /// @throws std::runtime_error, naming the file, if it is missing or not in the format.
  explicit GoldenFile(const std::filesystem::path& path);
  /// The file `<name>.safetensors` of tests/data/golden.
  [[nodiscard]] static GoldenFile open(const std::string& name);

  /// @throws std::out_of_range, naming file and tensor, where there is none of that name.
  [[nodiscard]] const GoldenTensor& at(const std::string& name) const;

 private:
  std::string path_;
  std::vector<std::byte> contents_;
  std::map<std::string, GoldenTensor> tensors_;
};

}  // namespace spillway::test
