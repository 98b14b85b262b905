#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>

namespace spillway {

/// Base of every exception that Spillway throws. The message names what happened, where, and what to do.
class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// What was being done to a file when the operating system refused.
struct IoFailure {
  std::string operation;     ///< "read", "write", "open", "fallocate", …
  std::string path;          ///< File or folder; swap files are nameless, then the folder that holds them.
  std::uint64_t offset = 0;  ///< Byte offset in the file.
  std::uint64_t bytes = 0;   ///< Bytes that were wanted; 0 where it was not about a range of bytes.
  int error_number = 0;      ///< errno value; 0 where the transfer ended without one (zero progress, end of file).
  std::string advice;        ///< What the user can do; may be empty.
};

/// An operation on a file failed for good, after bounded retries.
class IoError : public Error {
 public:
  explicit IoError(IoFailure failure);
  [[nodiscard]] const IoFailure& failure() const noexcept { return failure_; }

 private:
  IoFailure failure_;
};

/// The file system holds less than what was asked for.
class OutOfSpace : public IoError {
 public:
  using IoError::IoError;
};

/// Bytes that came back are not those that were written: damaged, stale or belonging to another block.
class Corruption : public Error {
 public:
  using Error::Error;
};

/// A file or message does not follow its format.
class FormatError : public Error {
 public:
  using Error::Error;
};

/// A configuration value is missing, unknown, of the wrong type, or contradicts another.
class ConfigError : public Error {
 public:
  using Error::Error;
};

/// A reservation would exceed a tier's budget.
class BudgetExceeded : public Error {
 public:
  using Error::Error;
};

/// Another rank died.
class PeerLost : public Error {
 public:
  using Error::Error;
};

/// A deadline passed.
class TimedOut : public Error {
 public:
  using Error::Error;
};

/// The work was given up on request.
class Cancelled : public Error {
 public:
  using Error::Error;
};

}  // namespace spillway
