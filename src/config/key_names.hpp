#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

namespace spillway::app {

[[nodiscard]] bool same_ignoring_case(std::string_view a, std::string_view b);

/// Insertions, deletions and replacements that turn one name into the other.
[[nodiscard]] std::size_t edit_distance(std::string_view a, std::string_view b);

/// The candidate closest to `name`; empty where none is so close that it can have been meant.
[[nodiscard]] std::string_view nearest_name(std::string_view name, std::span<const std::string_view> candidates);

/// `name` as it goes into a message: cut where it is longer than any key of ours, control characters replaced by ?.
[[nodiscard]] std::string shown_name(std::string_view name);

}  // namespace spillway::app
