#include <spillway/app/cli/probe_command.hpp>

#include <iostream>

#include <spillway/app/probe/gpu_probe.hpp>
#include <spillway/app/probe/machine_probe.hpp>

namespace spillway::app {

int run_probe(const ProbeFlags& flags) {
  MachineProbe probe = probe_machine({.folders = flags.nvme_paths});
  probe.gpus = probe_gpus();
  std::cout << (flags.json ? to_json(probe).dump(2) + "\n" : describe(probe));
  return 0;
}

}  // namespace spillway::app
