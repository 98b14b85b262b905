#pragma once

#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace spillway::test {

/// A part that a test program plays in a process of its own, `program --child=NAME ARGUMENT…`: what is killed, or
/// measured as a whole, needs one, and a program of its own would compile the same headers again. Define one, as a
/// variable of static storage, beside what it does.
class ChildRole {
 public:
  using Arguments = std::span<const std::string>;
  /// @returns the exit status.
  using Play = int (*)(Arguments arguments);

  /// `name` outlives this.
  ChildRole(std::string_view name, Play play);
};

/// Plays the role that `arguments` (the program's name first) ask for. @returns its exit status; nothing where no role
/// is asked for, 2 for one that the program does not have.
[[nodiscard]] std::optional<int> play_child_role(std::span<const std::string> arguments);

/// This program, to be started as a child.
[[nodiscard]] std::filesystem::path this_program();
/// The arguments of a child that plays `name`.
[[nodiscard]] std::vector<std::string> as_child(std::string_view name, std::vector<std::string> arguments);

}  // namespace spillway::test
