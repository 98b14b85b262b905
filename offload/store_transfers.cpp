#include <spillway/offload/store_transfers.hpp>

#include <algorithm>
#include <exception>
#include <utility>

#include <spillway/offload/request_state.hpp>
#include <spillway/offload/stall_timer.hpp>

namespace spillway::offload {
namespace {

/// The wait for a transfer, divided when it ends between the transfer and what that came behind.
class TransferStall {
 public:
  TransferStall(Tiers& tiers, StallCause cause, const Ticket& behind) : tiers_(tiers), cause_(cause), behind_(behind) {}
  TransferStall(const TransferStall&) = delete;
  TransferStall& operator=(const TransferStall&) = delete;
  ~TransferStall() {
    const Trace::Clock::time_point end = Trace::Clock::now();
    Trace::Clock::time_point turn = begin_;
    if (behind_) {
      turn = behind_.done() ? std::clamp(behind_.state()->ended_at(), begin_, end) : end;
    }
    if (turn > begin_) {
      count_stall(tiers_, StallCause::kWriteBack, begin_, turn);
    }
    if (end > turn) {
      count_stall(tiers_, cause_, turn, end);
    }
  }

 private:
  Tiers& tiers_;
  const StallCause cause_;
  const Ticket& behind_;
  const TraceSpan range_{nullptr, Trace::Track::kStalls, "stall"};  // For a profiler alone.
  const Trace::Clock::time_point begin_ = Trace::Clock::now();
};

}  // namespace

Ticket StoreTransfers::submit(const IoRequest& request, std::initializer_list<Ticket> after) {
  return tiers_.engine().submit(request, std::span(after.begin(), after.size()));
}

Ticket StoreTransfers::read(std::uint64_t offset, std::span<std::byte> pages, std::initializer_list<Ticket> after) {
  Ticket ticket = submit({IoRequest::Operation::kRead, tiers_.swap_file_id(), offset, pages, read_lane_}, after);
  tiers_.stats().read_bytes += pages.size();
  return ticket;
}

Ticket StoreTransfers::write(Version version, std::uint64_t offset, std::span<std::byte> pages, Ticket after) {
  writes_.reserve(writes_.size() + 1);  // So that a write in flight is never forgotten for want of memory.
  const Ticket summed = version.sum ? version.sum->ended() : Ticket();
  Ticket ticket = submit({IoRequest::Operation::kWrite, tiers_.swap_file_id(), offset, pages, Lane::kWriteBack},
                         {std::move(after), summed});
  writes_.push_back({ticket, std::move(version)});
  tiers_.stats().written_bytes += pages.size();
  return ticket;
}

void StoreTransfers::wait(const Ticket& ticket, StallCause cause, const Ticket& behind) const {
  if (!ticket) {
    return;
  }
  if (ticket.done()) {
    ticket.wait(tiers_.deadline());
    return;
  }
  const TransferStall stall(tiers_, cause, behind);
  tiers_.engine().expedite(ticket);
  ticket.wait(tiers_.deadline());
}

std::uint64_t StoreTransfers::await(BlockSum& sum) const {
  sum.make();
  if (!sum.ended().done()) {
    const StallTimer timer(tiers_, StallCause::kChecksum);
    sum.ended().settle();
  }
  return sum.value();
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

BackgroundSums::SumPtr StoreTransfers::sum_of(BlockId block, std::uint64_t generation) const {
  const auto write = std::find_if(writes_.begin(), writes_.end(), [&](const Write& other) {
    return other.version.block == block && other.version.generation == generation;
  });
  return write == writes_.end() ? nullptr : write->version.sum;
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
