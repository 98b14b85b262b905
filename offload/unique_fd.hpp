#pragma once

#include <utility>

namespace spillway::offload {

/// Owns one file descriptor and closes it. Move-only; a moved-from object is empty.
class UniqueFd {
 public:
  UniqueFd() noexcept = default;
  /// Takes ownership of `fd`; a negative value means empty. Named so that an int never becomes an owner by accident.
  [[nodiscard]] static UniqueFd adopt(int fd) noexcept { return UniqueFd(fd); }
  UniqueFd(UniqueFd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  UniqueFd& operator=(UniqueFd&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  UniqueFd(const UniqueFd&) = delete;
  UniqueFd& operator=(const UniqueFd&) = delete;
  ~UniqueFd();

  [[nodiscard]] int get() const noexcept { return fd_; }
  [[nodiscard]] explicit operator bool() const noexcept { return fd_ >= 0; }
  /// Gives the descriptor up without closing it.
  [[nodiscard]] int release() noexcept { return std::exchange(fd_, -1); }

 private:
  explicit UniqueFd(int fd) noexcept : fd_(fd) {}
  int fd_ = -1;
};

}  // namespace spillway::offload
