#pragma once

#include <chrono>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/util/intrusive_ptr.h>

#include <spillway/distributed/peer_exchange.hpp>

namespace c10d {
class Backend;
class Store;
class Work;
}  // namespace c10d

namespace spillway::distributed {

class Meeting;

/// Pieces over c10d's Gloo: a send and a receive for each pair, so that what fails or is late has a rank's name.
///
/// Gloo closes all connections of a mesh when one wait runs out, and a peer can't tell that from a death. So there are
/// two meshes: one for data, and one on which a rank that gives up says why. A closed data connection without such a
/// farewell means that the peer is gone.
class GlooExchange final : public PeerExchange {
 public:
  /// Attends the meeting and connects to all ranks. @throws as connect() does.
  explicit GlooExchange(const Meeting& meeting);
  ~GlooExchange() override;

  void exchange(std::span<const at::Tensor> outgoing, std::span<const at::Tensor> incoming, const Call& call) override;

 private:
  void connect(const std::string& master_addr, std::chrono::milliseconds timeout);
  /// A message under way to or from a peer.
  struct Transfer {
    int peer;
    at::Tensor piece;
    c10::intrusive_ptr<c10d::Work> work;
  };

  [[nodiscard]] Transfer send(c10d::Backend& mesh, const at::Tensor& piece, int peer, int tag) const;
  [[nodiscard]] Transfer receive(c10d::Backend& mesh, const at::Tensor& piece, int peer, int tag) const;
  /// Why the transfer `failed` did not end. `waiting` are those after it.
  [[nodiscard]] GroupFailure explain(const Call& call, int failed_peer, std::span<Transfer> waiting);
  void say_farewell(const GroupFailure& failure);

  Member self_;
  c10::intrusive_ptr<c10d::Store> store_;  ///< Kept for the ranks that are still connecting, where it is served here.
  c10::intrusive_ptr<c10d::Backend> data_;
  c10::intrusive_ptr<c10d::Backend> control_;
  std::vector<Transfer> farewells_;  ///< A receive for each other rank's farewell, posted from the start.
  std::uint32_t exchanges_ = 0;
};

}  // namespace spillway::distributed
