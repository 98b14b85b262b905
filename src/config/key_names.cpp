#include <spillway/app/config/key_names.hpp>

#include <algorithm>
#include <cctype>
#include <numeric>
#include <vector>

namespace spillway::app {
namespace {

constexpr std::size_t kLongestName = 64;

/// Edits at which a name still passes for a slip of the pen.
std::size_t tolerated_edits(std::string_view name) { return std::max<std::size_t>(2, name.size() / 4); }

}  // namespace

bool same_ignoring_case(std::string_view a, std::string_view b) {
  return std::ranges::equal(a, b, [](unsigned char x, unsigned char y) { return std::tolower(x) == std::tolower(y); });
}

std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 0; i < a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i + 1;
    for (std::size_t j = 0; j < b.size(); ++j) {
      const std::size_t replaced = diagonal + (a[i] == b[j] ? 0U : 1U);
      diagonal = row[j + 1];
      row[j + 1] = std::min({replaced, row[j] + 1, row[j + 1] + 1});
    }
  }
  return row.back();
}

std::string_view nearest_name(std::string_view name, std::span<const std::string_view> candidates) {
  if (name.size() > kLongestName) {
    return {};
  }
  std::string_view nearest;
  std::size_t least = tolerated_edits(name) + 1;
  for (const std::string_view candidate : candidates) {
    const std::size_t distance = edit_distance(name, candidate);
    if (distance < least) {
      least = distance;
      nearest = candidate;
    }
  }
  return nearest;
}

std::string shown_name(std::string_view name) {
  std::string shown(name.substr(0, kLongestName));
  // Not in a message: line ends and terminal commands, and the zero that would end it.
  std::ranges::replace_if(
      shown, [](char c) { return static_cast<unsigned char>(c) < ' ' || c == '\x7f'; }, '?');
  return name.size() <= kLongestName ? shown : shown + "…";
}

}  // namespace spillway::app
