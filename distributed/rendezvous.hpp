#pragma once

#include <cstdint>
#include <memory>

namespace spillway::distributed {

/// Serves the key-value store at which ranks find each other, for a launcher that starts local ranks: it passes port()
/// on to them as MASTER_PORT, and sets TORCHELASTIC_USE_AGENT_STORE=True so that rank 0 joins instead of serving.
/// Serves from the constructor to the destructor, on a thread of c10d's. The ranks need it only until they are
/// connected.
class RendezvousHost {
 public:
  /// @param port  TCP port on all interfaces; 0 lets the system choose a free one.
  /// @throws Error where the port can't be listened on.
  explicit RendezvousHost(std::uint16_t port = 0);
  RendezvousHost(RendezvousHost&&) noexcept;
  RendezvousHost& operator=(RendezvousHost&&) noexcept;
  ~RendezvousHost();

  [[nodiscard]] std::uint16_t port() const noexcept;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace spillway::distributed
