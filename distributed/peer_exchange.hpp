#pragma once

#include <chrono>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace at {
class Tensor;
}

namespace spillway::distributed {

enum class Operation : std::uint8_t { AllReduce, AllGather, Broadcast, Barrier, AllToAll };

/// As it is called in the interface: "all_reduce".
[[nodiscard]] const char* name_of(Operation operation) noexcept;

/// One call of a collective, as messages name it.
struct Call {
  Operation operation{};
  std::uint64_t number = 0;  ///< Counts the group's calls from 1, the same on every rank.
  std::chrono::milliseconds timeout{};
  std::chrono::steady_clock::time_point deadline;

  /// Time that is left; at least a millisecond, because c10d takes 0 for no limit.
  [[nodiscard]] std::chrono::milliseconds remaining() const;
};

/// Why a group ended. The rank that finds out tells it to the others, so that all fail with the first cause.
struct GroupFailure {
  enum class Kind : std::uint8_t { PeerLost, TimedOut };
  Kind kind{};
  Operation operation{};          ///< The call in which it was noticed, …
  std::uint64_t call_number = 0;  ///< … and its number.
  std::vector<int> culprits;      ///< The ranks that were lost or late, ascending.
  int reporter = 0;               ///< The rank that noticed.
};

/// Who speaks, for messages.
struct Member {
  int rank = 0;
  int world_size = 1;
};

/// @throws PeerLost or TimedOut in the words of one rank of the group. `timeout` is the group's.
[[noreturn]] void raise(const GroupFailure& failure, Member self, std::chrono::milliseconds timeout);

/// "rank 1" or "ranks 1, 3".
[[nodiscard]] std::string list_ranks(const std::vector<int>& ranks);

/// What a group needs of its transport: pieces that change hands between all pairs of ranks.
class PeerExchange {
 public:
  PeerExchange() = default;
  PeerExchange(const PeerExchange&) = delete;
  PeerExchange& operator=(const PeerExchange&) = delete;
  virtual ~PeerExchange() = default;

  /// Sends outgoing[r] to rank r and fills incoming[r] with what rank r sent, for every other rank r; blocks until
  /// all have changed hands. Both spans have one tensor a rank: CPU, contiguous, of the size that both sides know; an
  /// undefined one means nothing. The tensors stay the caller's.
  /// @throws PeerLost, TimedOut by `call.deadline`; the exchange can't be used afterwards.
  virtual void exchange(std::span<const at::Tensor> outgoing, std::span<const at::Tensor> incoming,
                        const Call& call) = 0;
};

}  // namespace spillway::distributed
