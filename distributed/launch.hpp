#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

namespace spillway::distributed {

/// Which of how many processes this one is, and where they meet.
struct RankEnvironment {
  int rank = 0;
  int world_size = 1;
  int local_rank = 0;                 ///< Number of this rank on its machine: the index of its GPU.
  std::string master_addr;            ///< Host of the rendezvous; empty in a world of one.
  std::uint16_t master_port = 0;      ///< Its TCP port; 0 in a world of one.
  bool launcher_hosts_store = false;  ///< The launcher serves the rendezvous (torchrun does); otherwise rank 0 does.
  int attempt = 0;  ///< How often the launcher has restarted the ranks; keeps the attempts' keys apart.
};

/// Gives a variable's value, or nothing where it is not set.
using EnvironmentLookup = std::function<std::optional<std::string>(const std::string& name)>;

/// Reads the rank from the variables that a launcher set, in this order:
///   - torchrun: RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR, MASTER_PORT, and of torchelastic whether its agent hosts
///     the store and how often it has restarted the ranks;
///   - srun: SLURM_PROCID, SLURM_STEP_NUM_TASKS, SLURM_LOCALID. Where MASTER_ADDR is not set, the first host of the
///     step's node list takes its place; where MASTER_PORT is not set, a port made from the job's number.
/// Without any of them this process is a world of one. A batch script's own environment has no step and counts as none.
/// @throws ConfigError naming the variable, what it held and what to do.
[[nodiscard]] RankEnvironment read_rank_environment(const EnvironmentLookup& lookup);

/// As above, from this process's environment.
[[nodiscard]] RankEnvironment read_rank_environment();

}  // namespace spillway::distributed
