#include <spillway/distributed/arguments.hpp>

#include <string>

#include <ATen/core/Tensor.h>
#include <c10/core/ScalarType.h>

#include <spillway/offload/error.hpp>

namespace spillway::distributed {
namespace {

void check_dense(const at::Tensor& tensor, const char* operation) {
  if (!tensor.defined()) {
    throw Error(std::string(operation) + ": the tensor is undefined; pass zeros of the agreed shape instead");
  }
  if (tensor.layout() != at::kStrided) {
    throw Error(std::string(operation) + ": the tensor is sparse; pass a dense one (to_dense())");
  }
}

}  // namespace

void check_all_reduce(const at::Tensor& tensor, Reduction reduction) {
  check_dense(tensor, "all_reduce");
  const auto dtype = tensor.scalar_type();
  const bool has_mean = c10::isFloatingType(dtype) || c10::isComplexType(dtype);
  if (dtype == at::kBool || (reduction == Reduction::Mean && !has_mean)) {
    throw Error(std::string("all_reduce: ") + c10::toString(dtype) + " has no " +
                (reduction == Reduction::Mean ? "mean" : "sum") + " over the ranks; convert the tensor first");
  }
}

void check_all_gather(const at::Tensor& tensor) { check_dense(tensor, "all_gather"); }

void check_all_to_all(std::span<const at::Tensor> outgoing, int world_size) {
  if (outgoing.size() != static_cast<std::size_t>(world_size)) {
    throw Error("all_to_all: got " + std::to_string(outgoing.size()) + " tensors for " + std::to_string(world_size) +
                " ranks; pass one for each, an empty one where there is nothing to send");
  }
  for (const at::Tensor& tensor : outgoing) {
    check_dense(tensor, "all_to_all");
    if (tensor.scalar_type() != outgoing.front().scalar_type()) {
      throw Error(std::string("all_to_all: the tensors are ") + c10::toString(outgoing.front().scalar_type()) +
                  " and " + c10::toString(tensor.scalar_type()) + "; all have to be of one type");
    }
  }
}

void check_broadcast(const at::Tensor& tensor, int root, int world_size) {
  check_dense(tensor, "broadcast");
  if (root < 0 || root >= world_size) {
    throw Error("broadcast: root is rank " + std::to_string(root) + ", but the ranks go from 0 to " +
                std::to_string(world_size - 1));
  }
}

}  // namespace spillway::distributed
