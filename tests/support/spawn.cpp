#include "support/spawn.hpp"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <stdexcept>
#include <system_error>
#include <utility>

extern char** environ;

namespace spillway::test {
namespace {

void require_zero(int error, const std::string& what) {
  if (error != 0) throw std::system_error(error, std::generic_category(), what);
}

struct Pipe {
  int read_end = -1;
  int write_end = -1;

  Pipe() {
    std::array<int, 2> ends{};
    require_zero(::pipe2(ends.data(), O_CLOEXEC) == 0 ? 0 : errno, "pipe2");
    read_end = ends[0];
    write_end = ends[1];
    ::fcntl(read_end, F_SETFL, O_NONBLOCK);
  }
  ~Pipe() {
    if (read_end >= 0) ::close(read_end);
    if (write_end >= 0) ::close(write_end);
  }
  Pipe(const Pipe&) = delete;
  Pipe& operator=(const Pipe&) = delete;

  int release_read_end() { return std::exchange(read_end, -1); }
};

std::vector<std::string> merged_environment(const std::map<std::string, std::string>& added) {
  std::vector<std::string> merged;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text(*entry);
    if (!added.contains(std::string(text.substr(0, text.find('='))))) merged.emplace_back(text);
  }
  for (const auto& [name, value] : added) merged.push_back(name + "=" + value);
  return merged;
}

std::vector<char*> as_c_strings(std::vector<std::string>& strings) {
  std::vector<char*> pointers;
  for (std::string& text : strings) pointers.push_back(text.data());
  pointers.push_back(nullptr);
  return pointers;
}

/// The two objects that posix_spawn takes, destroyed in every case.
struct SpawnSetup {
  posix_spawn_file_actions_t actions;
  posix_spawnattr_t attributes;

  SpawnSetup() {
    ::posix_spawn_file_actions_init(&actions);
    ::posix_spawnattr_init(&attributes);
  }
  ~SpawnSetup() {
    ::posix_spawn_file_actions_destroy(&actions);
    ::posix_spawnattr_destroy(&attributes);
  }
  SpawnSetup(const SpawnSetup&) = delete;
  SpawnSetup& operator=(const SpawnSetup&) = delete;
};

int milliseconds_until(std::chrono::steady_clock::time_point until) {
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - std::chrono::steady_clock::now());
  return static_cast<int>(std::clamp<std::int64_t>(left.count(), 0, 1'000'000));
}

}  // namespace

Child::Child(const std::filesystem::path& program, const SpawnOptions& options) : name_(program.filename().string()) {
  Pipe output;
  Pipe error;
  SpawnSetup setup;
  ::posix_spawn_file_actions_addopen(&setup.actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  ::posix_spawn_file_actions_adddup2(&setup.actions, output.write_end, STDOUT_FILENO);
  ::posix_spawn_file_actions_adddup2(&setup.actions, error.write_end, STDERR_FILENO);
  if (!options.working_directory.empty()) {
    ::posix_spawn_file_actions_addchdir_np(&setup.actions, options.working_directory.c_str());
  }
  ::posix_spawnattr_setflags(&setup.attributes, POSIX_SPAWN_SETPGROUP);
  ::posix_spawnattr_setpgroup(&setup.attributes, 0);

  std::vector<std::string> words{program.string()};
  words.insert(words.end(), options.arguments.begin(), options.arguments.end());
  std::vector<std::string> environment = merged_environment(options.environment);
  require_zero(::posix_spawn(&pid_, program.c_str(), &setup.actions, &setup.attributes, as_c_strings(words).data(),
                             as_c_strings(environment).data()),
               "cannot start " + program.string());
  output_ = output.release_read_end();
  error_ = error.release_read_end();
  ended_ = static_cast<int>(::syscall(SYS_pidfd_open, pid_, 0));
  if (ended_ < 0) {
    const int number = errno;
    signal(SIGKILL);
    reap();
    require_zero(number, "pidfd_open");
  }
}

Child::~Child() {
  if (!reaped_) {
    signal(SIGKILL);
    reap();
  }
  for (const int descriptor : {ended_, output_, error_}) {
    if (descriptor >= 0) ::close(descriptor);
  }
}

void Child::signal(int number) noexcept {
  if (!reaped_) ::kill(-pid_, number);
}

void Child::drain(int& descriptor, std::string& into) {
  std::array<char, 16'384> buffer;
  while (descriptor >= 0) {
    const ssize_t count = ::read(descriptor, buffer.data(), buffer.size());
    if (count > 0) {
      into.append(buffer.data(), static_cast<std::size_t>(count));
    } else if (count < 0 && errno == EINTR) {
      continue;
    } else if (count < 0 && errno == EAGAIN) {
      return;
    } else {
      ::close(descriptor);
      descriptor = -1;
    }
  }
}

bool Child::pump(Clock::time_point until) {
  // poll() passes over a negative descriptor: an output that was closed early.
  std::array<pollfd, 3> watched{{{ended_, POLLIN, 0}, {output_, POLLIN, 0}, {error_, POLLIN, 0}}};
  const int ready = ::poll(watched.data(), watched.size(), milliseconds_until(until));
  if (ready < 0 && errno != EINTR) require_zero(errno, "poll");
  drain(output_, outcome_.output);
  drain(error_, outcome_.error);
  return watched[0].revents == 0;
}

void Child::reap() {
  int status = 0;
  while (::waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
  }
  reaped_ = true;
  outcome_.exit_status = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

void Child::give_up(const std::string& why) {
  throw std::runtime_error(name_ + ": " + why + "\n--- its output ---\n" + outcome_.output + "--- its errors ---\n" +
                           outcome_.error);
}

void Child::wait_for_output(std::string_view text, std::chrono::milliseconds deadline) {
  const Clock::time_point until = Clock::now() + deadline;
  const auto printed = [&] {
    return outcome_.output.find(text) != std::string::npos || outcome_.error.find(text) != std::string::npos;
  };
  while (!printed()) {
    const bool runs = pump(until);
    if (printed()) return;
    if (!runs) give_up("ended without printing '" + std::string(text) + "'");
    if (Clock::now() >= until) give_up("did not print '" + std::string(text) + "' in time");
  }
}

Outcome Child::wait(std::chrono::milliseconds deadline) {
  const Clock::time_point until = Clock::now() + deadline;
  while (pump(until)) {
    if (Clock::now() >= until) {
      signal(SIGKILL);
      reap();
      give_up("still ran after " + std::to_string(deadline.count()) + " ms and was killed");
    }
  }
  if (!reaped_) reap();
  return outcome_;
}

Outcome run(const std::filesystem::path& program, const SpawnOptions& options, std::chrono::milliseconds deadline) {
  Child child(program, options);
  return child.wait(deadline);
}

}  // namespace spillway::test
