#include "support/child_role.hpp"

#include <iostream>
#include <map>

namespace spillway::test {
namespace {

constexpr std::string_view kChild = "--child=";

// Made at the first call: roles of other files are defined before this file's variables may be.
std::map<std::string_view, ChildRole::Play>& roles() {
  static std::map<std::string_view, ChildRole::Play> all;
  return all;
}

}  // namespace

ChildRole::ChildRole(std::string_view name, Play play) { roles().emplace(name, play); }

std::optional<int> play_child_role(std::span<const std::string> arguments) {
  if (arguments.size() < 2 || !arguments[1].starts_with(kChild)) {
    return std::nullopt;
  }
  const auto role = roles().find(std::string_view(arguments[1]).substr(kChild.size()));
  if (role == roles().end()) {
    std::cerr << arguments[0] << " has no role for " << arguments[1] << "\n";
    return 2;
  }
  return role->second(arguments.subspan(2));
}

std::filesystem::path this_program() { return std::filesystem::read_symlink("/proc/self/exe"); }

std::vector<std::string> as_child(std::string_view name, std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), std::string(kChild) + std::string(name));
  return arguments;
}

}  // namespace spillway::test
