#include <spillway/offload/uring.hpp>

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <thread>

#include <spillway/offload/check.hpp>

namespace spillway::offload {
namespace {

// From what the newest kernels do best to what the oldest accept. Completions are then run by our thread when it asks
// for them, instead of interrupting it.
constexpr std::array<unsigned, 4> kFlagLadder = {
    IORING_SETUP_SUBMIT_ALL | IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN,  // 6.1
    IORING_SETUP_SUBMIT_ALL | IORING_SETUP_COOP_TASKRUN,                                // 5.19
    IORING_SETUP_SUBMIT_ALL,                                                            // 5.18
    0};

constexpr unsigned kRefusalsMax = 1000;
constexpr int kAbandonDeadlineMs = 60'000;

}  // namespace

int Uring::open(unsigned entries) {
  int result = -EINVAL;
  for (const unsigned flags : kFlagLadder) {
    io_uring_params parameters{};
    parameters.flags = flags;
    result = io_uring_queue_init_params(entries, &ring_, &parameters);
    if (result != -EINVAL) {
      break;
    }
  }
  if (result < 0) {
    return -result;
  }
  open_ = true;
  // A child that forks off must not share the ring's memory with us. Without this advice it would, harmlessly.
  static_cast<void>(io_uring_ring_dontfork(&ring_));
  return 0;
}

void Uring::close() noexcept {
  if (open_) {
    io_uring_queue_exit(&ring_);
    open_ = false;
  }
}

bool Uring::abandon() noexcept {
  close();
  if (!ended_) {
    return false;
  }
  pollfd ended{.fd = ended_.get(), .events = POLLIN, .revents = 0};
  int result = 0;
  do {
    result = ::poll(&ended, 1, kAbandonDeadlineMs);
  } while (result < 0 && errno == EINTR);
  return result == 1 && (ended.revents & POLLHUP) != 0;
}

io_uring_sqe& Uring::prepare() {
  io_uring_sqe* const submission = io_uring_get_sqe(&ring_);
  SPILLWAY_CHECK(submission != nullptr, "more submissions are pending than the ring was opened for");
  return *submission;
}

int Uring::submit_and_wait() {
  const int result = io_uring_submit_and_wait(&ring_, 1);
  if (result >= 0 || result == -EINTR) {
    refusals_ = 0;
    return 0;
  }
  if (result != -EAGAIN && result != -EBUSY) {
    return -result;
  }
  // The kernel has no room now. Completions to be reaped make some; without any, time may.
  if (io_uring_cq_ready(&ring_) > 0) {
    refusals_ = 0;
    return 0;
  }
  if (++refusals_ > kRefusalsMax) {
    return -result;
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(1));
  return 0;
}

int Uring::make_file_table(unsigned slots) noexcept {
  const int result = io_uring_register_files_sparse(&ring_, slots + 1);
  std::array<int, 2> ends{};
  if (result == 0 && ::pipe2(ends.data(), O_CLOEXEC) == 0) {
    ended_ = UniqueFd::adopt(ends[0]);
    const UniqueFd held_by_ring = UniqueFd::adopt(ends[1]);
    if (set_file(slots, held_by_ring.get()) != 0) {
      ended_ = UniqueFd();
    }
  }
  return -result;
}

int Uring::make_buffer_table(unsigned slots) noexcept { return -io_uring_register_buffers_sparse(&ring_, slots); }

int Uring::set_file(unsigned slot, int fd) noexcept {
  const int result = io_uring_register_files_update(&ring_, slot, &fd, 1);
  return result == 1 ? 0 : (result < 0 ? -result : EIO);
}

int Uring::set_buffer(unsigned slot, std::span<std::byte> memory) noexcept {
  const iovec piece{memory.data(), memory.size()};
  const __u64 tag = 0;
  const int result = io_uring_register_buffers_update_tag(&ring_, slot, &piece, &tag, 1);
  return result == 1 ? 0 : (result < 0 ? -result : EIO);
}

}  // namespace spillway::offload
