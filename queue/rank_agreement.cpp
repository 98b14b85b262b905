#include <vector>

#include <ATen/core/Tensor.h>
#include <ATen/ops/full.h>

#include <spillway/distributed/collective.hpp>
#include <spillway/offload/error.hpp>
#include <spillway/queue/rank_agreement.hpp>

namespace spillway::queue {

void together(distributed::Collective& ranks, const std::string& what, const std::function<void()>& body) {
  std::exception_ptr failure;
  try {
    body();
  } catch (const std::exception&) {
    failure = std::current_exception();
  }
  const std::vector<at::Tensor> failed = ranks.all_gather(at::full({1}, failure ? 1 : 0, at::TensorOptions(at::kLong)));
  if (failure) std::rethrow_exception(failure);
  for (std::size_t rank = 0; rank < failed.size(); ++rank) {
    if (failed[rank].item<std::int64_t>() == 0) continue;
    throw Error("rank " + std::to_string(rank) + " could not " + what + ", and says why; no rank did");
  }
}

}  // namespace spillway::queue
