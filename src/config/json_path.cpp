#include <spillway/app/config/json_path.hpp>

#include <algorithm>
#include <string>
#include <utility>

#include <spillway/app/config/key_names.hpp>
#include <spillway/offload/error.hpp>

namespace spillway::app {
namespace {

/// Cuts the first part off a path.
std::string_view next_part(std::string_view& path) {
  const std::size_t dot = std::min(path.find('.'), path.size());
  const std::string_view part = path.substr(0, dot);
  path.remove_prefix(std::min(dot + 1, path.size()));
  return part;
}

Json& make_member(Json& parent, std::string_view key, std::string_view path) {
  if (parent.is_null()) {
    parent = Json::Object();
  }
  auto* object = parent.get_if<Json::Object>();
  if (object == nullptr) {
    throw ConfigError(shown_name(path) + ": wanted an object around " + shown_name(key) + ", got " + parent.describe());
  }
  if (Json* member = parent.find(key)) {
    return *member;
  }
  return object->emplace_back(std::string(key), Json()).second;
}

}  // namespace

const Json* find_at(const Json& root, std::string_view path) noexcept {
  const Json* place = &root;
  while (place != nullptr && !path.empty()) {
    place = place->find(next_part(path));
  }
  return place == nullptr || place->is_null() ? nullptr : place;
}

Json& make_at(Json& root, std::string_view path) {
  if (static_cast<std::size_t>(std::ranges::count(path, '.')) >= kJsonMaxDepth) {
    throw ConfigError(shown_name(path) + ": unknown key; none has that many parts");
  }
  Json* place = &root;
  for (std::string_view rest = path; !rest.empty();) {
    place = &make_member(*place, next_part(rest), path);
  }
  return *place;
}

Json take_at(Json& root, std::string_view path) {
  const std::size_t dot = path.rfind('.');
  const std::string_view parent_path = path.substr(0, dot == std::string_view::npos ? 0 : dot);
  const std::string_view key = path.substr(dot == std::string_view::npos ? 0 : dot + 1);
  if (find_at(root, path) == nullptr) {
    return {};
  }
  auto& object = *make_at(root, parent_path).get_if<Json::Object>();
  const auto found = std::ranges::find(object, key, &Json::Member::first);
  Json value = std::move(found->second);
  object.erase(found);
  return value;
}

}  // namespace spillway::app
