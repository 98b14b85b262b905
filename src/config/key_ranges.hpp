#pragma once

#include <cstddef>
#include <span>
#include <string_view>

#include <spillway/app/config/block_visitor.hpp>

namespace spillway::app {

inline constexpr IntegerRange kCount{.min = 1};
inline constexpr IntegerRange kPositive32{.min = 1, .max = 0x7FFFFFFF};
inline constexpr NumberRange kShare{.min = 0.0, .max = 1.0};
inline constexpr NumberRange kBelowOne{.min = 0.0, .max = 1.0, .open_max = true};
inline constexpr NumberRange kInsideUnit{.min = 0.0, .max = 1.0, .open_min = true, .open_max = true};
inline constexpr NumberRange kAboveZero{.min = 0.0, .open_min = true};

/// Visits an enumerator by its name; `names` are in the order of the enumerators.
template <typename Enum>
void choose(BlockVisitor& visitor, std::string_view key, Enum& value, std::span<const std::string_view> names) {
  auto index = static_cast<std::size_t>(value);
  visitor.choice(key, index, names);
  value = static_cast<Enum>(index);
}

}  // namespace spillway::app
