#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace spillway::app {

/// Bounds of an integer, both included. No count goes above what a signed 64-bit integer holds.
struct IntegerRange {
  std::uint64_t min = 0;
  std::uint64_t max = std::numeric_limits<std::int64_t>::max();
};

/// Bounds of a number; an open end is itself excluded.
struct NumberRange {
  double min = 0.0;
  double max = std::numeric_limits<double>::max();
  bool open_min = false;
  bool open_max = false;
};

/// Whose rules hold in a block: DeepSpeed's allow "auto" for a number, and an unknown key is a warning.
enum class BlockOwner : std::uint8_t { kDeepSpeed, kOurs };

/// Passed over the keys of a configuration. Keys, types and ranges are stated once, in config_keys.cpp; one
/// implementation reads values from JSON, the other writes them, so that the two can't come apart.
class BlockVisitor {
 public:
  BlockVisitor() = default;
  BlockVisitor(const BlockVisitor&) = delete;
  BlockVisitor& operator=(const BlockVisitor&) = delete;
  virtual ~BlockVisitor() = default;

  virtual void boolean(std::string_view key, bool& value) = 0;
  virtual void integer(std::string_view key, std::uint64_t& value, IntegerRange range) = 0;
  virtual void number(std::string_view key, double& value, NumberRange range) = 0;
  /// The same, where "auto" stands for nothing: what is decided once the rest is known.
  virtual void optional_integer(std::string_view key, std::optional<std::uint64_t>& value, IntegerRange range) = 0;
  virtual void optional_number(std::string_view key, std::optional<double>& value, NumberRange range) = 0;
  virtual void text(std::string_view key, std::string& value) = 0;
  /// A list of texts, or one text in which commas part them, as on the command line. @param what  One is.
  virtual void texts(std::string_view key, std::vector<std::string>& values, std::string_view what) = 0;
  /// One of `names`, by its index; upper and lower case are the same.
  virtual void choice(std::string_view key, std::size_t& index, std::span<const std::string_view> names) = 0;
  /// A list that is not empty.
  virtual void integers(std::string_view key, std::vector<std::uint64_t>& values, IntegerRange range) = 0;
  /// A list of exactly that many numbers.
  virtual void numbers(std::string_view key, std::span<double> values, NumberRange range) = 0;
  virtual void block(std::string_view key, BlockOwner owner, const std::function<void(BlockVisitor&)>& visit) = 0;
};

}  // namespace spillway::app
