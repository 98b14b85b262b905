#pragma once

#include <liburing.h>

#include <cstddef>
#include <cstdint>
#include <span>

namespace spillway::offload {

/// Owns one io_uring instance, used by the thread that opened it and by no other: the kernel serves such a ring best.
/// Pinned in place; not inherited by forked children. Functions return 0 or an errno value.
class Uring {
 public:
  Uring() = default;
  Uring(const Uring&) = delete;
  Uring& operator=(const Uring&) = delete;
  ~Uring() { close(); }

  /// @param entries  submissions that may be pending at once.
  [[nodiscard]] int open(unsigned entries);
  /// Precondition: the kernel holds no memory of ours any more.
  void close() noexcept;

  /// An empty submission to fill in; it goes to the kernel with the next submit_and_wait(). Precondition: there are
  /// no more pending than given to open(). Submissions are numbered from 0 on in the order of these calls.
  [[nodiscard]] io_uring_sqe& prepare();
  [[nodiscard]] std::uint64_t prepared() const noexcept { return prepared_; }
  /// How many of them the kernel has taken.
  [[nodiscard]] std::uint64_t taken() const noexcept { return prepared_ - io_uring_sq_ready(&ring_); }

  /// Hands over what is prepared and blocks until there is a completion, or until interrupted. An error means that the
  /// ring is of no use any more.
  [[nodiscard]] int submit_and_wait();
  /// Waits until the kernel has ended all it has taken, without the system call that submit_and_wait() uses.
  void cancel_taken() noexcept;

  /// Calls `handle(user_data, result)` for each completion that has arrived.
  template <typename Handle>
  void reap(Handle handle) {
    io_uring_cqe* completion = nullptr;
    while (io_uring_peek_cqe(&ring_, &completion) == 0) {
      const std::uint64_t user_data = io_uring_cqe_get_data64(completion);
      const std::int32_t result = completion->res;
      io_uring_cqe_seen(&ring_, completion);
      handle(user_data, result);
    }
  }

  /// Make empty tables that the functions below fill.
  [[nodiscard]] int make_file_table(unsigned slots) noexcept;
  [[nodiscard]] int make_buffer_table(unsigned slots) noexcept;
  /// @param fd  -1 empties the slot.
  [[nodiscard]] int set_file(unsigned slot, int fd) noexcept;
  /// @param memory  at most 1 GiB; an empty span empties the slot.
  [[nodiscard]] int set_buffer(unsigned slot, std::span<std::byte> memory) noexcept;

 private:
  io_uring ring_{};
  bool open_ = false;
  std::uint64_t prepared_ = 0;
  unsigned refusals_ = 0;  // In a row, without a completion in between.
};

}  // namespace spillway::offload
