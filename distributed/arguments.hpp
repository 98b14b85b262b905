#pragma once

#include <span>

#include <spillway/distributed/collective.hpp>

namespace spillway::distributed {

/// What every implementation refuses before it sends anything. @throws Error saying what to pass instead.
void check_all_reduce(const at::Tensor& tensor, Reduction reduction);
void check_all_gather(const at::Tensor& tensor);
void check_all_to_all(std::span<const at::Tensor> outgoing, int world_size);
void check_broadcast(const at::Tensor& tensor, int root, int world_size);

}  // namespace spillway::distributed
