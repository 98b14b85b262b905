#pragma once

#include <sys/types.h>

#include <chrono>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace spillway::test {

struct SpawnOptions {
  /// Without the program's name.
  std::vector<std::string> arguments = {};
  /// Added to this process's own, or in the place of what is there.
  std::map<std::string, std::string> environment = {};
  /// Empty: this process's.
  std::filesystem::path working_directory = {};
};

/// How a program ended. `exit_status` is what a shell shows: 128 + the signal for one that a signal ended.
struct Outcome {
  int exit_status = 0;
  std::string output;  ///< All of standard output.
  std::string error;   ///< All of standard error.
};

/// A program running as a child, in a process group of its own. It is started by exec, never by a bare fork: a forked
/// copy of a process that has used LibTorch's threads hangs. Standard input is empty; both outputs are captured, which
/// goes on only inside the waiting functions, so that a child that prints more than a pipe holds waits for them.
/// Not thread-safe. The destructor kills what still runs of the group.
class Child {
 public:
  static constexpr std::chrono::milliseconds kDeadline{60'000};

  /// @throws std::system_error where the program cannot be started.
  explicit Child(const std::filesystem::path& program, const SpawnOptions& options = {});
  ~Child();

  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  pid_t pid() const noexcept { return pid_; }

  /// Blocks until one of its outputs contains `text`.
  /// @throws std::runtime_error with what was printed, when the child ends or the deadline passes before.
  void wait_for_output(std::string_view text, std::chrono::milliseconds deadline = kDeadline);

  /// Sends a signal to the whole group; nothing if it has been waited for.
  void signal(int number) noexcept;

  /// Blocks until the child has ended.
  /// @throws std::runtime_error with what was printed, after killing it, when the deadline passes before.
  Outcome wait(std::chrono::milliseconds deadline = kDeadline);

 private:
  using Clock = std::chrono::steady_clock;

  /// Reads what there is, blocking until something happens; false once the child has ended and all is read.
  bool pump(Clock::time_point until);
  void drain(int& descriptor, std::string& into);
  void reap();
  [[noreturn]] void give_up(const std::string& why);

  std::string name_;
  pid_t pid_ = -1;
  int ended_ = -1;  // A pidfd: readable when the child has ended.
  int output_ = -1;
  int error_ = -1;
  bool reaped_ = false;
  Outcome outcome_;
};

/// Starts a program and waits for its end; throws as Child does.
Outcome run(const std::filesystem::path& program, const SpawnOptions& options = {},
            std::chrono::milliseconds deadline = Child::kDeadline);

}  // namespace spillway::test
