#pragma once

#include <chrono>
#include <exception>
#include <string>

#include <c10/util/intrusive_ptr.h>

#include <spillway/distributed/launch.hpp>
#include <spillway/distributed/process_group.hpp>

namespace c10d {
class Store;
}  // namespace c10d

namespace spillway::distributed {

/// The way of one rank into its group: until when, and the words for what goes wrong. Implemented in rendezvous.cpp.
class Meeting {
 public:
  /// Both are kept by reference. The deadline counts from here.
  Meeting(const RankEnvironment& environment, const GroupOptions& options);

  /// Opens the store, serving it where that falls to this rank, and returns when all ranks are there.
  /// @throws TimedOut naming who is missing, Error.
  [[nodiscard]] c10::intrusive_ptr<c10d::Store> attend() const;

  [[nodiscard]] std::chrono::milliseconds remaining() const;
  [[nodiscard]] const RankEnvironment& environment() const noexcept { return environment_; }

  /// @throws TimedOut where the deadline has passed, else Error: what could not be done, and c10d's reason.
  [[noreturn]] void fail(const std::string& what, const std::exception& cause) const;

 private:
  [[nodiscard]] c10::intrusive_ptr<c10d::Store> open_store() const;
  [[nodiscard]] bool late() const { return std::chrono::steady_clock::now() >= deadline_; }
  [[noreturn]] void name_missing(c10d::Store& store) const;

  const RankEnvironment& environment_;
  const GroupOptions& options_;
  std::chrono::steady_clock::time_point deadline_;
  std::string prefix_;  ///< Of every message.
};

}  // namespace spillway::distributed
