#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace spillway::app {

/// A JSON document as a plain value. Objects keep the order of their members, which are few: lookup is linear.
/// Integers are kept apart from other numbers, so that no cast can change one.
class Json {
 public:
  using Array = std::vector<Json>;
  using Member = std::pair<std::string, Json>;
  using Object = std::vector<Member>;
  /// Non-negative integers are always std::uint64_t, negative ones std::int64_t, everything else a finite double.
  using Value = std::variant<std::nullptr_t, bool, std::uint64_t, std::int64_t, double, std::string, Array, Object>;

  // Special members are out of line: the variant's are long, and every user would get a copy.
  Json() noexcept;
  Json(const Json&);
  Json(Json&&) noexcept;
  Json& operator=(const Json&);
  Json& operator=(Json&&) noexcept;
  ~Json();
  Json(std::nullptr_t) {}                       // NOLINT(google-explicit-constructor): a literal reads as itself.
  Json(bool value) : value_(value) {}           // NOLINT(google-explicit-constructor)
  Json(std::uint64_t value) : value_(value) {}  // NOLINT(google-explicit-constructor)
  Json(double value) : value_(value) {}         // NOLINT(google-explicit-constructor)
  Json(std::string value) : value_(std::move(value)) {}         // NOLINT(google-explicit-constructor)
  Json(std::string_view value) : value_(std::string(value)) {}  // NOLINT(google-explicit-constructor)
  Json(const char* value) : value_(std::string(value)) {}       // NOLINT(google-explicit-constructor)
  Json(Array value) : value_(std::move(value)) {}               // NOLINT(google-explicit-constructor)
  Json(Object value) : value_(std::move(value)) {}              // NOLINT(google-explicit-constructor)
  /// Of any sign; non-negative ones are stored as std::uint64_t.
  [[nodiscard]] static Json of_integer(std::int64_t value);

  [[nodiscard]] bool is_null() const noexcept { return std::holds_alternative<std::nullptr_t>(value_); }
  template <typename T>
  [[nodiscard]] const T* get_if() const noexcept {
    return std::get_if<T>(&value_);
  }
  template <typename T>
  [[nodiscard]] T* get_if() noexcept {
    return std::get_if<T>(&value_);
  }
  /// The member of that name; nullptr where there is none or this is no object.
  [[nodiscard]] const Json* find(std::string_view key) const noexcept;
  [[nodiscard]] Json* find(std::string_view key) noexcept;

  /// "an object", "text "x"", "number 3": for messages; long text is cut.
  [[nodiscard]] std::string describe() const;
  /// On one line where indent is 0. Numbers are written with the fewest digits that give them back; a number that is
  /// not finite (JSON has none) becomes null.
  [[nodiscard]] std::string dump(unsigned indent = 0) const;

  bool operator==(const Json&) const = default;

 private:
  explicit Json(std::int64_t negative) : value_(std::in_place_type<std::int64_t>, negative) {}

  Value value_;
};

inline constexpr std::size_t kJsonMaxBytes = 1U << 20;
inline constexpr std::size_t kJsonMaxDepth = 8;
inline constexpr std::size_t kJsonMaxMembers = 1000;

/// What a document may be; the defaults are those of a configuration.
struct JsonLimits {
  std::size_t bytes = kJsonMaxBytes;
  std::size_t depth = kJsonMaxDepth;
  std::size_t members = kJsonMaxMembers;  ///< Of one object.
  std::size_t values = kJsonMaxBytes;     ///< In all.
};

/// Parses one document. `label` names it in messages.
/// @throws ConfigError: no JSON (with line and column), above the limits, or a key given twice (with its path).
[[nodiscard]] Json parse_json(std::string_view text, std::string_view label, const JsonLimits& limits = {});

}  // namespace spillway::app
