#include <spillway/optimizer/gradient_exchange.hpp>

#include <algorithm>
#include <string>
#include <unordered_map>
#include <utility>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>

#include <spillway/distributed/collective.hpp>
#include <spillway/offload/error.hpp>
#include <spillway/optimizer/bucket_message.hpp>
#include <spillway/optimizer/tensor_piece.hpp>

namespace spillway::optimizer {

SumSlot make_sum_slot(const ShardPiece& piece, const ListedParameter& parameter) {
  SumSlot slot{.parameter = piece.parameter,
               .begin = piece.begin,
               .sizes = parameter.sizes,
               .strides = parameter.gradient_strides,
               .sum_type = parameter.sum_type(),
               .gradient_type = parameter.tensor.scalar_type()};
  if (is_part(piece, parameter)) {
    slot.sizes = {static_cast<std::int64_t>(piece.numel())};
    slot.strides = {1};
  }
  return slot;
}

GradientExchange::GradientExchange(const ShardPlan& plan, const ParameterList& parameters, GradientAccumulators& sums,
                                   distributed::Collective* group)
    : plan_(plan), parameters_(parameters), sums_(sums), group_(group), rank_(group == nullptr ? 0 : group->rank()) {}

void GradientExchange::run(std::size_t bucket, std::vector<at::Tensor> gradients) {
  const at::NoGradGuard no_grad;
  const int world_size = plan_.world_size();
  lay_in_rows(bucket, gradients);
  std::vector<at::Tensor> messages;
  for (int owner = 0; owner < world_size; ++owner) {
    messages.push_back(owner == rank_ ? at::empty({0}, at::kByte) : pack(bucket, owner, gradients));
  }
  // What others own is on its way, and need not be kept any longer.
  const std::vector<std::size_t>& parameters = plan_.buckets()[bucket].parameters;
  const std::vector<ShardPiece> owned = owned_pieces(plan_, bucket, rank_);
  for (std::size_t i = 0, o = 0; i < parameters.size(); ++i) {
    if (o < owned.size() && parameters[i] == owned[o].parameter) {
      ++o;
    } else {
      gradients[i].reset();
    }
  }
  std::vector<at::Tensor> received(messages.size());
  if (world_size > 1) {
    received = group_->all_to_all(messages);
    messages.clear();
  }
  Terms terms(owned.size());
  for (int rank = 0; rank < world_size; ++rank) {
    if (rank == rank_) {
      keep(bucket, gradients, terms);
    } else {
      unpack(bucket, rank, received[static_cast<std::size_t>(rank)], terms);
    }
  }
  if (failure_ == nullptr) {
    try {
      if (bucket == 0) {
        sums_.prepare_round();
      }
      if (!owned.empty()) {
        add(bucket, terms);
      }
      if (bucket + 1 == plan_.buckets().size()) {
        sums_.announce();  // For the next round, or the step: whichever comes.
      }
    } catch (...) {
      failure_ = std::current_exception();
    }
  }
}

// Gradients of which ranks own parts, in the order of their parameter's memory.
void GradientExchange::lay_in_rows(std::size_t bucket, std::vector<at::Tensor>& gradients) const {
  const Bucket& planned = plan_.buckets()[bucket];
  std::size_t i = 0;
  for (const ShardPiece& piece : planned.pieces) {
    const ListedParameter& parameter = parameters_[piece.parameter];
    if (piece.begin != 0 || !is_part(piece, parameter)) {
      continue;  // The first piece stands for all of its parameter.
    }
    while (planned.parameters[i] != piece.parameter) {
      ++i;
    }
    if (gradients[i].defined()) {
      gradients[i] =
          piece_in_order_of(parameter.tensor, gradients[i], 0, static_cast<std::uint64_t>(parameter.tensor.numel()));
    }
  }
}

at::Tensor GradientExchange::part_of(const ShardPiece& piece, const at::Tensor& gradient) const {
  return gradient.defined() && is_part(piece, parameters_[piece.parameter])
             ? gradient.narrow(0, static_cast<std::int64_t>(piece.begin), static_cast<std::int64_t>(piece.numel()))
             : gradient;
}

at::Tensor GradientExchange::pack(std::size_t bucket, int owner, std::span<const at::Tensor> gradients) const {
  const Bucket& planned = plan_.buckets()[bucket];
  const std::vector<ShardPiece> owned = owned_pieces(plan_, bucket, owner);
  std::vector<at::Tensor> present(owned.size());
  std::uint64_t bytes = message_align(owned.size());
  for (std::size_t i = 0, o = 0; i < planned.parameters.size() && o < owned.size(); ++i) {
    if (planned.parameters[i] == owned[o].parameter) {
      present[o] = part_of(owned[o], gradients[i]);
      bytes += present[o].defined() ? message_bytes(parameters_[owned[o].parameter], owned[o]) : 0;
      ++o;
    }
  }
  std::uint64_t offset = message_align(owned.size());
  const at::Tensor message = new_message(bytes, offset);
  for (std::size_t o = 0; o < owned.size(); ++o) {
    if (present[o].defined()) {
      message.mutable_data_ptr<std::uint8_t>()[o] = 1;
      const ListedParameter& parameter = parameters_[owned[o].parameter];
      place_in_message(parameter, owned[o], message, offset).copy_(present[o]);
      offset += message_bytes(parameter, owned[o]);
    }
  }
  return message;
}

void GradientExchange::unpack(std::size_t bucket, int from, const at::Tensor& message, Terms& terms) const {
  const std::vector<ShardPiece> owned = owned_pieces(plan_, bucket, rank_);
  const auto size = static_cast<std::uint64_t>(message.numel());
  std::uint64_t offset = message_align(owned.size());
  const auto check_room = [&](std::uint64_t wanted) {
    if (size < wanted) {
      throw Error("rank " + std::to_string(from) + " sent " + std::to_string(size) + " bytes for bucket " +
                  std::to_string(bucket) + " of the gradients where rank " + std::to_string(rank_) + " expects " +
                  std::to_string(wanted) + " at least; start all ranks with the same program and configuration");
    }
  };
  check_room(offset);
  for (std::size_t o = 0; o < owned.size(); ++o) {
    if (message.const_data_ptr<std::uint8_t>()[o] == 0) {
      continue;
    }
    const ListedParameter& parameter = parameters_[owned[o].parameter];
    check_room(offset + message_bytes(parameter, owned[o]));
    terms[o].push_back(place_in_message(parameter, owned[o], message, offset));
    offset += message_bytes(parameter, owned[o]);
  }
}

void GradientExchange::keep(std::size_t bucket, std::span<const at::Tensor> gradients, Terms& terms) const {
  const std::vector<std::size_t>& parameters = plan_.buckets()[bucket].parameters;
  const std::vector<ShardPiece> owned = owned_pieces(plan_, bucket, rank_);
  for (std::size_t i = 0, o = 0; i < parameters.size() && o < owned.size(); ++i) {
    if (parameters[i] == owned[o].parameter) {
      if (gradients[i].defined()) {
        terms[o].push_back(part_of(owned[o], gradients[i]));
      }
      ++o;
    }
  }
}

void GradientExchange::add(std::size_t bucket, const Terms& terms) {
  const std::vector<ShardPiece> owned = owned_pieces(plan_, bucket, rank_);
  SumCell late{bucket, {}, 0, nullptr, {}};  // Parameters that were frozen when room was made.
  for (std::size_t o = 0; o < owned.size(); ++o) {
    if (!terms[o].empty() && sums_.find(owned[o].parameter) == nullptr) {
      late.slots.push_back(make_sum_slot(owned[o], parameters_[owned[o].parameter]));
    }
  }
  if (!late.slots.empty()) {
    sums_.make_room({std::move(late)});
  }
  std::unordered_map<std::size_t, std::size_t> index;
  for (std::size_t o = 0; o < owned.size(); ++o) {
    index[owned[o].parameter] = o;
  }
  for (SumCell& cell : sums_.cells_of(bucket)) {
    Terms of_cell;
    for (const SumSlot& slot : cell.slots) {
      of_cell.push_back(terms[index.at(slot.parameter)]);
    }
    sums_.add(cell, of_cell);
  }
}

std::uint64_t GradientExchange::staging_bytes() const {
  if (plan_.world_size() == 1) {
    return 0;
  }
  std::uint64_t most = 0;
  for (std::size_t b = 0; b < plan_.buckets().size(); ++b) {
    std::uint64_t bytes = 0;
    for (const ShardPiece& piece : plan_.buckets()[b].pieces) {
      const std::uint64_t one = 16 + message_bytes(parameters_[piece.parameter], piece);
      bytes += piece.owner == rank_ ? one * static_cast<std::uint64_t>(plan_.world_size() - 1) : one;
    }
    most = std::max(most, bytes);
  }
  return most;
}

}  // namespace spillway::optimizer
