#pragma once

#include <sys/types.h>

#include <chrono>
#include <string>

#include <spillway/app/config/json.hpp>
#include <spillway/offload/unique_fd.hpp>

namespace spillway::app {

/// Why a program of a peer can't be run; empty where it can be tried.
[[nodiscard]] std::string why_no_peer(const std::string& program);

/// A number of its answer. @throws Error if there is none of that name.
[[nodiscard]] double peer_figure(const Json& answer, const char* key);

/// Another program that measures on demand: it reads a line of JSON from its standard input and answers with one on
/// its standard output, so that what it takes to start is paid once. Ends with this object: its input is closed, and it
/// is killed if that is not enough.
class PeerProcess {
 public:
  /// Starts `program` and takes its first line. @throws Error, with what the program said, if it does not get so far.
  explicit PeerProcess(const std::string& program);
  ~PeerProcess();
  PeerProcess(const PeerProcess&) = delete;
  PeerProcess& operator=(const PeerProcess&) = delete;

  /// What the program says of itself: the member "ready" of its first line.
  [[nodiscard]] const std::string& name() const noexcept { return name_; }
  /// Blocks until there is an answer. @throws Error for an answer with the member "error", an end of the program, or
  /// none within minutes.
  [[nodiscard]] Json ask(const Json& request);

 private:
  PeerProcess() = default;
  [[nodiscard]] Json answer(std::chrono::milliseconds deadline);

  std::string program_;
  offload::UniqueFd channel_;
  pid_t pid_ = -1;
  std::string received_;
  std::string name_;
};

}  // namespace spillway::app
