#include <spillway/app/bench/engine_side.hpp>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <vector>

#include <spillway/app/bench/cost_clock.hpp>
#include <spillway/app/bench/log_sinks.hpp>
#include <spillway/offload/aligned_block.hpp>
#include <spillway/offload/engine_factory.hpp>
#include <spillway/offload/error.hpp>

namespace spillway::app {
namespace {

using Operation = offload::IoRequest::Operation;
using offload::Ticket;

constexpr std::chrono::milliseconds kDeadline{60'000};
constexpr std::size_t kSlotsMin = 8;

// Twice what is in flight, so that waiting for the oldest request leaves enough behind it.
std::size_t slots_of(const IoJob& job) {
  return std::max<std::size_t>(kSlotsMin, 2 * job.depth * job.block_bytes / job.request_bytes);
}

}  // namespace

IoCost EngineSide::measure(const IoJob& job) {
  const auto engine = offload::make_engine(
      offload::EngineChoice::kAuto, {.block_bytes = job.block_bytes, .queue_depth = job.depth}, folder_, say_nothing);
  const std::size_t slots = slots_of(job);
  const std::span<std::byte> ring = memory_.first(slots * job.request_bytes);
  engine->register_memory(ring);
  const offload::FileId id = engine->register_file(job.fd, "the benchmark's file in " + folder_);
  info_ = engine->info();
  const auto wait = [&engine](const Ticket& ticket) {
    if (ticket) {
      engine->expedite(ticket);
      ticket.wait(kDeadline);
    }
  };
  std::vector<Ticket> tickets(slots);
  const CostClock clock;
  for (std::uint64_t offset = 0; offset < job.bytes; offset += job.request_bytes) {
    const std::size_t slot = offset / job.request_bytes % slots;
    wait(tickets[slot]);
    tickets[slot] = engine->submit({.operation = job.writes_at(offset) ? Operation::kWrite : Operation::kRead,
                                    .file = id,
                                    .offset = offset,
                                    .buffer = ring.subspan(slot * job.request_bytes, job.request_bytes)});
  }
  // In the order of submission: the oldest follows the newest.
  const std::size_t oldest = job.bytes / job.request_bytes % slots;
  for (std::size_t i = 0; i < slots; ++i) {
    wait(tickets[(oldest + i) % slots]);
  }
  return clock.elapsed();
}

void EngineSide::check(int fd) {
  const auto engine = offload::make_engine(offload::EngineChoice::kAuto, {}, folder_, say_on_stderr);
  const offload::FileId id = engine->register_file(fd, "the benchmark's file in " + folder_);
  const std::span<std::byte> out = memory_.first(IoJob{}.request_bytes);
  const offload::AlignedBlock back(out.size());
  const Ticket written = engine->submit({.operation = Operation::kWrite, .file = id, .offset = 0, .buffer = out});
  engine->submit({.operation = Operation::kRead, .file = id, .offset = 0, .buffer = back.bytes()}, {&written, 1})
      .wait(kDeadline);
  if (!std::equal(out.begin(), out.end(), back.bytes().begin())) {
    throw Error("the storage engine did not bring back what it had written under " + folder_);
  }
}

}  // namespace spillway::app
