#include <spillway/distributed/thread_collective.hpp>

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <mutex>
#include <optional>
#include <utility>

#include <ATen/core/Tensor.h>

#include <spillway/distributed/peer_collective.hpp>
#include <spillway/distributed/peer_exchange.hpp>
#include <spillway/offload/check.hpp>

namespace spillway::distributed {
namespace {

/// What the ends of a group share. All members are guarded by `mutex`.
struct MailRoom {
  explicit MailRoom(std::size_t world_size) : mail(world_size * world_size), gone(world_size, false) {}

  [[nodiscard]] std::deque<at::Tensor>& box(std::size_t from, std::size_t to) { return mail[from * gone.size() + to]; }

  std::mutex mutex;
  std::condition_variable changed;
  std::vector<std::deque<at::Tensor>> mail;
  std::vector<bool> gone;
  std::optional<GroupFailure> failure;
};

class ThreadExchange final : public PeerExchange {
 public:
  ThreadExchange(std::shared_ptr<MailRoom> room, Member self) : room_(std::move(room)), self_(self) {}

  ~ThreadExchange() override {
    const std::lock_guard lock(room_->mutex);
    room_->gone[index(self_.rank)] = true;
    room_->changed.notify_all();
  }

  void exchange(std::span<const at::Tensor> outgoing, std::span<const at::Tensor> incoming, const Call& call) override {
    std::unique_lock lock(room_->mutex);
    for (int peer = 0; peer < self_.world_size; ++peer) {
      if (moves(outgoing, peer)) {
        room_->box(index(self_.rank), index(peer)).push_back(outgoing[index(peer)].clone());
      }
    }
    room_->changed.notify_all();
    for (int peer = 0; peer < self_.world_size; ++peer) {
      if (moves(incoming, peer)) {
        incoming[index(peer)].copy_(take(lock, incoming, peer, call));
      }
    }
  }

 private:
  static std::size_t index(int rank) { return static_cast<std::size_t>(rank); }

  [[nodiscard]] bool moves(std::span<const at::Tensor> pieces, int peer) const {
    return peer != self_.rank && pieces[index(peer)].defined() && pieces[index(peer)].numel() > 0;
  }

  at::Tensor take(std::unique_lock<std::mutex>& lock, std::span<const at::Tensor> incoming, int peer,
                  const Call& call) {
    auto& box = room_->box(index(peer), index(self_.rank));
    const bool woken = room_->changed.wait_until(
        lock, call.deadline, [&] { return !box.empty() || room_->failure || room_->gone[index(peer)]; });
    if (!box.empty()) {
      at::Tensor piece = std::move(box.front());
      box.pop_front();
      return piece;
    }
    if (!room_->failure) {
      room_->failure = GroupFailure{GroupFailure::Kind::PeerLost, call.operation, call.number, {peer}, self_.rank};
      if (!woken) {
        room_->failure->kind = GroupFailure::Kind::TimedOut;
        for (int later = peer + 1; later < self_.world_size; ++later) {
          if (moves(incoming, later) && room_->box(index(later), index(self_.rank)).empty()) {
            room_->failure->culprits.push_back(later);
          }
        }
      }
      room_->changed.notify_all();
    }
    raise(*room_->failure, self_, call.timeout);
  }

  std::shared_ptr<MailRoom> room_;  // The ends are destroyed in any order; the last one frees it.
  Member self_;
};

}  // namespace

std::vector<std::unique_ptr<Collective>> make_thread_group(int world_size, std::chrono::milliseconds timeout) {
  SPILLWAY_CHECK(world_size > 0, "a group has ranks");
  const auto room = std::make_shared<MailRoom>(static_cast<std::size_t>(world_size));
  std::vector<std::unique_ptr<Collective>> ends;
  for (int rank = 0; rank < world_size; ++rank) {
    const Member self{rank, world_size};
    ends.push_back(std::make_unique<PeerCollective>(self, std::make_unique<ThreadExchange>(room, self), timeout));
  }
  return ends;
}

}  // namespace spillway::distributed
