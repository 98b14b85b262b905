#include <spillway/distributed/together.hpp>

#include <cstdint>
#include <exception>
#include <vector>

#include <ATen/core/Tensor.h>
#include <ATen/ops/full.h>

#include <spillway/distributed/collective.hpp>
#include <spillway/offload/error.hpp>

namespace spillway::distributed {

void together(Collective& ranks, const std::string& what, const std::function<void()>& body) {
  std::exception_ptr failure;
  try {
    body();
  } catch (...) {
    failure = std::current_exception();
  }
  std::vector<at::Tensor> failed;
  try {
    failed = ranks.all_gather(at::full({1}, failure ? 1 : 0, at::kLong));
  } catch (...) {
    if (!failure) throw;  // Otherwise this rank's own error says more than that the others have gone.
  }
  if (failure) std::rethrow_exception(failure);
  for (std::size_t rank = 0; rank < failed.size(); ++rank) {
    if (failed[rank].item<std::int64_t>() == 0) continue;
    throw Error("rank " + std::to_string(rank) + " could not " + what + ", so that no rank did; its own message says " +
                "why and what to do");
  }
}

}  // namespace spillway::distributed
