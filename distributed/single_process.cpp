#include <spillway/distributed/single_process.hpp>

#include <ATen/core/Tensor.h>

#include <spillway/distributed/arguments.hpp>

namespace spillway::distributed {

void SingleProcess::all_reduce(at::Tensor& tensor, Reduction reduction) { check_all_reduce(tensor, reduction); }

std::vector<at::Tensor> SingleProcess::all_gather(const at::Tensor& tensor) {
  check_all_gather(tensor);
  return {tensor.detach().clone(at::MemoryFormat::Contiguous)};
}

void SingleProcess::broadcast(at::Tensor& tensor, int root) { check_broadcast(tensor, root, /*world_size=*/1); }

std::vector<at::Tensor> SingleProcess::all_to_all(std::span<const at::Tensor> outgoing) {
  check_all_to_all(outgoing, /*world_size=*/1);
  return {outgoing.front().detach().clone(at::MemoryFormat::Contiguous).view({-1})};
}

}  // namespace spillway::distributed
