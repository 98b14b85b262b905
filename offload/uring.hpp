#pragma once

#include <liburing.h>

#include <cstddef>
#include <cstdint>
#include <span>

#include <spillway/offload/unique_fd.hpp>

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
  /// Precondition: nothing is in flight.
  void close() noexcept;
  /// For a ring that can't be entered any more while transfers are in flight: closes it and blocks until the kernel has
  /// ended them all. False if that can't be known, for want of a file table or because it took too long.
  [[nodiscard]] bool abandon() noexcept;

  /// An empty submission to fill in; it goes to the kernel with the next submit_and_wait(). Precondition: there are
  /// no more pending than given to open().
  [[nodiscard]] io_uring_sqe& prepare();

  /// Hands over what is prepared and blocks until there is a completion, or until interrupted. An error means that the
  /// ring is of no use any more.
  [[nodiscard]] int submit_and_wait();

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
  unsigned refusals_ = 0;  // In a row, without a completion in between.
  UniqueFd ended_;         // The end of a pipe whose other end the ring alone holds: it closes when the ring is gone.
};

}  // namespace spillway::offload
