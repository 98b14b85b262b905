#include <spillway/app/bench/peer_process.hpp>

#include <poll.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <system_error>

#include <spillway/offload/error.hpp>

namespace spillway::app {
namespace {

constexpr std::chrono::milliseconds kStartDeadline{180'000};  // It may compile something first.
constexpr std::chrono::milliseconds kAnswerDeadline{180'000};
constexpr std::chrono::milliseconds kEndDeadline{2'000};

[[noreturn]] void give_up(const std::string& program, const std::string& why) { throw Error(program + ": " + why); }

std::string reason(int error_number) { return std::generic_category().message(error_number); }

// False where it still runs after the deadline.
bool ended_within(pid_t pid, std::chrono::milliseconds deadline) {
  const auto until = std::chrono::steady_clock::now() + deadline;
  while (std::chrono::steady_clock::now() < until) {
    if (::waitpid(pid, nullptr, WNOHANG) != 0) {
      return true;
    }
    ::poll(nullptr, 0, 10);
  }
  return false;
}

}  // namespace

std::string why_no_peer(const std::string& program) {
  return ::access(program.c_str(), X_OK) == 0 ? std::string() : "not installed; `scripts/bootstrap peers` does that";
}

double peer_figure(const Json& answer, const char* key) {
  const Json* const member = answer.find(key);
  if (const auto* const value = member != nullptr ? member->get_if<double>() : nullptr) return *value;
  throw Error(std::string("the peer answers without ") + key);
}

// Delegates, so that the destructor ends the program where it does not get so far.
PeerProcess::PeerProcess(const std::string& program) : PeerProcess() {
  program_ = program;
  std::array<int, 2> ends{};
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) != 0) {
    give_up(program_, reason(errno));
  }
  channel_ = offload::UniqueFd::adopt(ends[0]);
  const auto theirs = offload::UniqueFd::adopt(ends[1]);
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_adddup2(&actions, theirs.get(), STDIN_FILENO);
  ::posix_spawn_file_actions_adddup2(&actions, theirs.get(), STDOUT_FILENO);
  std::array<char*, 2> arguments{program_.data(), nullptr};
  const int error = ::posix_spawn(&pid_, program_.c_str(), &actions, nullptr, arguments.data(), environ);
  ::posix_spawn_file_actions_destroy(&actions);
  if (error != 0) {
    give_up(program_, "could not be started: " + reason(error));
  }
  const Json first = answer(kStartDeadline);
  const Json* const ready = first.find("ready");
  const auto* const name = ready != nullptr ? ready->get_if<std::string>() : nullptr;
  if (name == nullptr) {
    give_up(program_, "did not say that it is ready");
  }
  name_ = *name;
}

PeerProcess::~PeerProcess() {
  if (pid_ <= 0) {
    return;
  }
  channel_ = offload::UniqueFd();
  if (!ended_within(pid_, kEndDeadline)) {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
}

Json PeerProcess::ask(const Json& request) {
  const std::string line = request.dump() + "\n";
  if (::send(channel_.get(), line.data(), line.size(), MSG_NOSIGNAL) != static_cast<ssize_t>(line.size())) {
    give_up(program_, "takes no more requests: " + reason(errno));
  }
  return answer(kAnswerDeadline);
}

Json PeerProcess::answer(std::chrono::milliseconds deadline) {
  const auto until = std::chrono::steady_clock::now() + deadline;
  std::size_t end = 0;
  while ((end = received_.find('\n')) == std::string::npos) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(until - std::chrono::steady_clock::now());
    pollfd readable{.fd = channel_.get(), .events = POLLIN, .revents = 0};
    if (left.count() <= 0 || ::poll(&readable, 1, static_cast<int>(left.count())) == 0) {
      give_up(program_, "has not answered within " + std::to_string(deadline.count() / 1000) + " s");
    }
    std::array<char, 4096> piece{};
    const ssize_t read = ::recv(channel_.get(), piece.data(), piece.size(), 0);
    if (read == 0 || (read < 0 && errno != EINTR)) {
      give_up(program_, "ended without an answer");
    }
    received_.append(piece.data(), static_cast<std::size_t>(std::max<ssize_t>(read, 0)));
  }
  const Json json = parse_json(received_.substr(0, end), program_);
  received_.erase(0, end + 1);
  const Json* const error = json.find("error");
  if (const auto* const text = error != nullptr ? error->get_if<std::string>() : nullptr) {
    give_up(program_, *text);
  }
  return json;
}

}  // namespace spillway::app
