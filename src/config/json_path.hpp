#pragma once

#include <string_view>

#include <spillway/app/config/json.hpp>

namespace spillway::app {

/// The value at a path of keys joined by dots; nullptr where there is none, or a null.
[[nodiscard]] const Json* find_at(const Json& root, std::string_view path) noexcept;

/// The value at a path, to be assigned to; objects on the way are made where there is nothing or null.
/// @throws ConfigError where something else than an object is in the way, or the path has more than kJsonMaxDepth
/// parts.
[[nodiscard]] Json& make_at(Json& root, std::string_view path);

/// Removes the value at a path and returns it; null where there is none.
Json take_at(Json& root, std::string_view path);

}  // namespace spillway::app
