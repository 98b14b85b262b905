// One of two ranks of the 8-weight example, with the optimizer's state on NVMe: ranks_wrap_program NVME_PATH.

#include <exception>
#include <iostream>

#include <spillway/distributed/process_group.hpp>

#include "distributed/eight_weights.hpp"
#include "system/ranks_wrap.hpp"

int main(int argc, char** argv) {
  using namespace spillway;
  if (argc != 2) {
    std::cerr << "usage: ranks_wrap_program NVME_PATH" << std::endl;
    return 2;
  }
  try {
    const auto group = distributed::connect(distributed::read_rank_environment());
    const at::Tensor weights = test::eight_weights_on_rank(*group, test::sgd_with_state_on_nvme(argv[1]));
    std::cout << test::to_hex_floats(weights) << std::endl;
  } catch (const std::exception& error) {
    std::cerr << error.what() << std::endl;
    return 1;
  }
  return 0;
}
