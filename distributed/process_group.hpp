#pragma once

#include <chrono>
#include <memory>
#include <string>

#include <spillway/distributed/collective.hpp>
#include <spillway/distributed/launch.hpp>

namespace spillway::distributed {

struct GroupOptions {
  /// Deadline of every collective, counted from its start on the rank that waits.
  std::chrono::milliseconds timeout = std::chrono::minutes(10);
  /// Deadline for all ranks to meet. Longer than the time by which their starts lie apart.
  std::chrono::milliseconds rendezvous_timeout = std::chrono::minutes(5);
  /// Keeps the groups of one run apart: the same on every rank, another for each group.
  std::string name = "spillway";
};

/// Connects this process with the other ranks and returns when all are there. In a world of one: SingleProcess, without
/// store or sockets. Otherwise c10d's Gloo over TCP: on the loopback device where the rendezvous is on it, on the
/// interface in GLOO_SOCKET_IFNAME where that is set, else on the one that this machine's name resolves to.
/// @throws ConfigError  an address or option can't be right.
/// @throws TimedOut     the rendezvous or a rank did not answer in time; the message names it.
/// @throws Error        the rendezvous' port is taken, or c10d failed otherwise; the message has its reason.
[[nodiscard]] std::unique_ptr<Collective> connect(const RankEnvironment& environment, const GroupOptions& options = {});

}  // namespace spillway::distributed
