#include <spillway/app/bench/uring_loop.hpp>

#include <spillway/app/bench/cost_clock.hpp>
#include <spillway/offload/error.hpp>

#ifdef SPILLWAY_WITH_URING

#include <liburing.h>

#include <algorithm>
#include <cerrno>
#include <system_error>

namespace spillway::app {
namespace {

[[noreturn]] void fail(const char* operation, int error_number) {
  throw IoError({.operation = operation,
                 .path = "the bare io_uring loop",
                 .offset = 0,
                 .bytes = 0,
                 .error_number = error_number,
                 .advice = "the bound can't be measured here"});
}

int require(const char* operation, int result) {
  if (result < 0) {
    fail(operation, -result);
  }
  return result;
}

// Owns a ring for the time of one run.
class Ring {
 public:
  explicit Ring(unsigned depth) {
    int result = io_uring_queue_init(depth, &ring_, IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN);
    if (result == -EINVAL) {  // Before Linux 6.1.
      result = io_uring_queue_init(depth, &ring_, 0);
    }
    require("io_uring_setup", result);
  }
  ~Ring() { io_uring_queue_exit(&ring_); }
  Ring(const Ring&) = delete;
  Ring& operator=(const Ring&) = delete;
  [[nodiscard]] io_uring* get() noexcept { return &ring_; }

 private:
  io_uring ring_{};
};

void submit(io_uring* ring, const IoJob& job, std::span<std::byte> memory, unsigned slot, std::uint64_t offset) {
  std::byte* const block = memory.data() + slot * job.block_bytes;
  const auto bytes = static_cast<unsigned>(job.block_bytes);
  io_uring_sqe* const submission = io_uring_get_sqe(ring);
  if (job.writes_at(offset)) {
    io_uring_prep_write_fixed(submission, 0, block, bytes, offset, 0);
  } else {
    io_uring_prep_read_fixed(submission, 0, block, bytes, offset, 0);
  }
  io_uring_sqe_set_flags(submission, IOSQE_FIXED_FILE);
  io_uring_sqe_set_data64(submission, slot);
}

}  // namespace

std::string uring_loop_unavailable() {
  try {
    const Ring ring(1);
    return {};
  } catch (const IoError& error) {
    return "io_uring is refused: " + std::generic_category().message(error.failure().error_number);
  }
}

IoCost run_uring_loop(const IoJob& job, std::span<std::byte> memory) {
  Ring owner(job.depth);
  io_uring* const ring = owner.get();
  const iovec buffers{memory.data(), job.depth * job.block_bytes};
  require("io_uring_register", io_uring_register_buffers(ring, &buffers, 1));
  require("io_uring_register", io_uring_register_files(ring, &job.fd, 1));
  const CostClock clock;
  const std::uint64_t blocks = job.bytes / job.block_bytes;
  std::uint64_t submitted = 0;
  for (; submitted < std::min<std::uint64_t>(job.depth, blocks); ++submitted) {
    submit(ring, job, memory, static_cast<unsigned>(submitted), submitted * job.block_bytes);
  }
  for (std::uint64_t completed = 0; completed < blocks;) {
    require("io_uring_enter", io_uring_submit_and_wait(ring, 1));
    io_uring_cqe* completion = nullptr;
    while (io_uring_peek_cqe(ring, &completion) == 0) {
      if (completion->res != static_cast<int>(job.block_bytes)) {
        fail(job.direction == IoDirection::kRead ? "read" : "write", completion->res < 0 ? -completion->res : 0);
      }
      const auto slot = static_cast<unsigned>(io_uring_cqe_get_data64(completion));
      io_uring_cqe_seen(ring, completion);
      ++completed;
      if (submitted < blocks) {
        submit(ring, job, memory, slot, submitted++ * job.block_bytes);
      }
    }
  }
  return clock.elapsed();
}

}  // namespace spillway::app

#else

namespace spillway::app {

std::string uring_loop_unavailable() { return "this build has no io_uring (SPILLWAY_URING is off)"; }

IoCost run_uring_loop(const IoJob& /*job*/, std::span<std::byte> /*memory*/) {
  throw Error("the bare io_uring loop: " + uring_loop_unavailable());
}

}  // namespace spillway::app

#endif
