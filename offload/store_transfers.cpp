#include <spillway/offload/store_transfers.hpp>

#include <array>
#include <chrono>
#include <exception>
#include <utility>

namespace spillway::offload {
namespace {

// Adds the time until it dies to a counter, however the scope is left.
class StallTimer {
 public:
  explicit StallTimer(std::atomic<std::uint64_t>& total_ns) : total_ns_(total_ns) {}
  StallTimer(const StallTimer&) = delete;
  StallTimer& operator=(const StallTimer&) = delete;
  ~StallTimer() {
    const auto elapsed = std::chrono::steady_clock::now() - start_;
    total_ns_ += static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(elapsed).count());
  }

 private:
  std::atomic<std::uint64_t>& total_ns_;
  const std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

}  // namespace

Ticket StoreTransfers::submit(const IoRequest& request, const Ticket& first, const Ticket& second) {
  std::array<Ticket, 2> after;
  std::size_t count = 0;
  for (const Ticket* ticket : {&first, &second}) {
    if (*ticket) {
      after.at(count++) = *ticket;
    }
  }
  return tiers_.engine().submit(request, std::span(after).first(count));
}

Ticket StoreTransfers::read(std::uint64_t offset, std::span<std::byte> pages, const Ticket& first,
                            const Ticket& second) {
  Ticket ticket =
      submit({IoRequest::Operation::kRead, tiers_.swap_file_id(), offset, pages, read_lane_}, first, second);
  tiers_.stats().read_bytes += pages.size();
  return ticket;
}

Ticket StoreTransfers::write(BlockId block, std::uint64_t offset, std::span<std::byte> pages, const Ticket& first) {
  writes_.reserve(writes_.size() + 1);  // So that a write in flight is never forgotten for want of memory.
  Ticket ticket =
      submit({IoRequest::Operation::kWrite, tiers_.swap_file_id(), offset, pages, Lane::kWriteBack}, first, {});
  writes_.push_back({ticket, block});
  tiers_.stats().written_bytes += pages.size();
  return ticket;
}

void StoreTransfers::wait(const Ticket& ticket) const {
  if (!ticket) {
    return;
  }
  if (ticket.done()) {
    ticket.wait(tiers_.deadline());
    return;
  }
  const StallTimer timer(tiers_.stats().stall_ns);
  const TraceSpan span(tiers_.trace(), Trace::Track::kStalls, "stall");
  tiers_.engine().expedite(ticket);
  ticket.wait(tiers_.deadline());
}

void StoreTransfers::settle(const Ticket& ticket) const noexcept {
  if (!ticket || ticket.done()) {
    return;
  }
  try {
    tiers_.engine().expedite(ticket);
  } catch (const std::exception&) {
    // It ends without the favour, too.
  }
  ticket.settle();
}

std::vector<Ticket> StoreTransfers::writes() const {
  std::vector<Ticket> tickets;
  tickets.reserve(writes_.size());
  for (const Write& write : writes_) {
    tickets.push_back(write.ticket);
  }
  return tickets;
}

}  // namespace spillway::offload
