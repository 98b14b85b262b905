#include <spillway/optimizer/weight_publisher.hpp>

#include <algorithm>

#include <ATen/core/grad_mode.h>

#include <spillway/distributed/collective.hpp>
#include <spillway/offload/error.hpp>
#include <spillway/optimizer/bucket_message.hpp>
#include <spillway/optimizer/tensor_piece.hpp>

namespace spillway::optimizer {
namespace {

at::Tensor weight_of(const ListedParameter& parameter, const ShardPiece& piece) {
  return is_part(piece, parameter) ? piece_view(parameter.tensor, piece.begin, piece.end) : parameter.tensor;
}

}  // namespace

WeightPublisher::WeightPublisher(const ShardPlan& plan, const ParameterList& parameters, distributed::Collective& group)
    : plan_(plan), parameters_(parameters), group_(group) {}

void WeightPublisher::run(std::size_t bucket, const BucketUpdate& update) {
  if (failure_) {
    return;
  }
  const at::NoGradGuard no_grad;
  const std::vector<at::Tensor> messages = group_.all_gather(pack(bucket, update));
  for (int rank = 0; rank < plan_.world_size(); ++rank) {
    const at::Tensor& message = messages[static_cast<std::size_t>(rank)];
    if (!failure_ && message.numel() > 0 && message.const_data_ptr<std::uint8_t>()[0] != 0) {
      failure_ = {rank, std::string(static_cast<const char*>(message.const_data_ptr()) + 1,
                                    static_cast<std::size_t>(message.numel() - 1))};
    }
  }
  for (int rank = 0; rank < plan_.world_size() && !failure_; ++rank) {
    if (rank != group_.rank()) {
      unpack(bucket, rank, messages[static_cast<std::size_t>(rank)]);
    }
  }
}

at::Tensor WeightPublisher::pack(std::size_t bucket, const BucketUpdate& update) const {
  if (update.failure) {
    at::Tensor message = new_message(1 + update.failure->size(), 1);
    auto* const bytes = message.mutable_data_ptr<std::uint8_t>();
    bytes[0] = 1;
    std::copy(update.failure->begin(), update.failure->end(), bytes + 1);
    return message;
  }
  const std::vector<ShardPiece> owned = owned_pieces(plan_, bucket, group_.rank());
  const std::uint64_t head = message_align(1 + owned.size());
  std::uint64_t bytes = head;
  for (std::size_t o = 0; o < owned.size(); ++o) {
    bytes += update.updated[o] ? message_bytes(parameters_[owned[o].parameter], owned[o]) : 0;
  }
  at::Tensor message = new_message(bytes, head);
  std::uint64_t offset = head;
  for (std::size_t o = 0; o < owned.size(); ++o) {
    if (update.updated[o]) {
      message.mutable_data_ptr<std::uint8_t>()[1 + o] = 1;
      const ListedParameter& parameter = parameters_[owned[o].parameter];
      place_in_message(parameter, owned[o], message, offset).copy_(weight_of(parameter, owned[o]));
      offset += message_bytes(parameter, owned[o]);
    }
  }
  return message;
}

void WeightPublisher::unpack(std::size_t bucket, int from, const at::Tensor& message) {
  const std::vector<ShardPiece> owned = owned_pieces(plan_, bucket, from);
  const auto size = static_cast<std::uint64_t>(message.numel());
  std::uint64_t offset = message_align(1 + owned.size());
  for (std::size_t o = 0; o < owned.size(); ++o) {
    if (size < offset || message.const_data_ptr<std::uint8_t>()[1 + o] == 0) {
      continue;
    }
    const ListedParameter& parameter = parameters_[owned[o].parameter];
    if (size - offset < message_bytes(parameter, owned[o])) {
      throw Error("rank " + std::to_string(from) + " published " + std::to_string(size) + " bytes of bucket " +
                  std::to_string(bucket) + ", fewer than " + parameter.name +
                  " takes; start all ranks with the same program and configuration");
    }
    weight_of(parameter, owned[o]).copy_(place_in_message(parameter, owned[o], message, offset));
    offset += message_bytes(parameter, owned[o]);
  }
}

std::uint64_t WeightPublisher::staging_bytes() const {
  std::uint64_t most = 0;
  for (const Bucket& bucket : plan_.buckets()) {
    std::uint64_t all = 0;
    std::uint64_t own = 0;
    for (const ShardPiece& piece : bucket.pieces) {
      const std::uint64_t bytes = 16 + message_bytes(parameters_[piece.parameter], piece);
      all += bytes;
      own += piece.owner == group_.rank() ? bytes : 0;
    }
    most = std::max(most, all + own);  // What comes, and this rank's own once more as it is sent.
  }
  return most;
}

}  // namespace spillway::optimizer
