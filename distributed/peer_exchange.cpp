#include <spillway/distributed/peer_exchange.hpp>

#include <algorithm>

#include <spillway/offload/error.hpp>

namespace spillway::distributed {
namespace {

std::string reported_by(const GroupFailure& failure, Member self) {
  return failure.reporter == self.rank ? "" : " (reported by rank " + std::to_string(failure.reporter) + ")";
}

}  // namespace

const char* name_of(Operation operation) noexcept {
  switch (operation) {
    case Operation::AllReduce:
      return "all_reduce";
    case Operation::AllGather:
      return "all_gather";
    case Operation::Broadcast:
      return "broadcast";
    case Operation::Barrier:
      return "barrier";
    case Operation::AllToAll:
      return "all_to_all";
  }
  return "unknown";
}

std::chrono::milliseconds Call::remaining() const {
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
  return std::max(left, std::chrono::milliseconds(1));
}

std::string list_ranks(const std::vector<int>& ranks) {
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    text += (i == 0 ? "" : ", ") + std::to_string(ranks[i]);
  }
  return text;
}

void raise(const GroupFailure& failure, Member self, std::chrono::milliseconds timeout) {
  const std::string where = std::string(name_of(failure.operation)) + " (call " + std::to_string(failure.call_number) +
                            ", on rank " + std::to_string(self.rank) + " of " + std::to_string(self.world_size) + ")";
  const std::string who = list_ranks(failure.culprits);
  if (failure.kind == GroupFailure::Kind::TimedOut) {
    throw TimedOut(where + ": " + who + " did not arrive within the deadline of " + std::to_string(timeout.count()) +
                   " ms" + reported_by(failure, self) + "; look there for what it waits for, or raise the deadline");
  }
  throw PeerLost(where + ": lost " + who + reported_by(failure, self) +
                 "; look there for the first error, then start all ranks again from the last checkpoint");
}

}  // namespace spillway::distributed
