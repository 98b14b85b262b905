#include <spillway/distributed/process_group.hpp>

#include <string>

#include <spillway/distributed/gloo_exchange.hpp>
#include <spillway/distributed/meeting.hpp>
#include <spillway/distributed/peer_collective.hpp>
#include <spillway/distributed/single_process.hpp>
#include <spillway/offload/error.hpp>

namespace spillway::distributed {
namespace {

void check(const RankEnvironment& environment, const GroupOptions& options) {
  if (environment.world_size < 1 || environment.rank < 0 || environment.rank >= environment.world_size) {
    throw ConfigError("process group: rank " + std::to_string(environment.rank) + " of " +
                      std::to_string(environment.world_size) + " can't be; ranks count from 0");
  }
  if (options.timeout.count() < 1 || options.rendezvous_timeout.count() < 1) {
    throw ConfigError("process group: the timeouts are " + std::to_string(options.timeout.count()) + " and " +
                      std::to_string(options.rendezvous_timeout.count()) + " ms; give at least 1 ms");
  }
  if (environment.world_size > 1 && (environment.master_addr.empty() || environment.master_port == 0)) {
    throw ConfigError("process group: the rendezvous has no address or no port; set MASTER_ADDR and MASTER_PORT");
  }
}

}  // namespace

std::unique_ptr<Collective> connect(const RankEnvironment& environment, const GroupOptions& options) {
  check(environment, options);
  if (environment.world_size == 1) {
    return std::make_unique<SingleProcess>();
  }
  const Meeting meeting(environment, options);
  return std::make_unique<PeerCollective>(Member{environment.rank, environment.world_size},
                                          std::make_unique<GlooExchange>(meeting), options.timeout);
}

}  // namespace spillway::distributed
