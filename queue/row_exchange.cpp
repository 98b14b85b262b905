#include <vector>

#include <ATen/ops/cat.h>

#include <spillway/distributed/collective.hpp>
#include <spillway/queue/row_exchange.hpp>

namespace spillway::queue {

namespace {

using Part = at::Tensor StoredRows::*;
constexpr Part kParts[] = {&StoredRows::values, &StoredRows::scales, &StoredRows::labels};

}  // namespace

StoredRows join_rows(std::span<const StoredRows> parts) {
  StoredRows joined;
  for (const Part part : kParts) {
    if (!(parts.front().*part).defined()) continue;
    std::vector<at::Tensor> tensors;
    for (const StoredRows& rows : parts) tensors.push_back(rows.*part);
    joined.*part = at::cat(tensors);
  }
  return joined;
}

StoredRows gather_stored_rows(const StoredRows& own, distributed::Collective& ranks) {
  StoredRows all;
  for (const Part part : kParts) {
    if ((own.*part).defined()) all.*part = at::cat(ranks.all_gather(own.*part));
  }
  return all;
}

StoredRows exchange_stored_rows(std::span<const StoredRows> outgoing, distributed::Collective& ranks) {
  StoredRows incoming;
  for (const Part part : kParts) {
    const at::Tensor& like = outgoing.front().*part;
    if (!like.defined()) continue;
    std::vector<at::Tensor> tensors;
    for (const StoredRows& rows : outgoing) tensors.push_back(rows.*part);
    const at::Tensor flat = at::cat(ranks.all_to_all(tensors));
    incoming.*part = like.dim() == 2 ? flat.view({-1, like.size(1)}) : flat;
  }
  return incoming;
}

}  // namespace spillway::queue
