#include <spillway/optimizer/piece_state.hpp>

#include <string>
#include <vector>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/zeros.h>

#include <spillway/offload/check.hpp>
#include <spillway/offload/error.hpp>
#include <spillway/optimizer/state_codec.hpp>
#include <spillway/optimizer/state_layout.hpp>
#include <spillway/optimizer/tensor_piece.hpp>

namespace spillway::optimizer {
namespace {

using torch::optim::OptimizerParamState;

// Where codes, or their scales, of one field lie among the bytes of all.
struct Range {
  std::int64_t begin = 0;
  std::int64_t size = 0;
};

Range codes_at(std::uint64_t field, std::uint64_t numel, std::uint64_t begin, std::uint64_t end) {
  return {static_cast<std::int64_t>(field * coded_field_bytes(numel) + begin), static_cast<std::int64_t>(end - begin)};
}

Range scales_at(std::uint64_t field, std::uint64_t numel, std::uint64_t begin, std::uint64_t end) {
  const std::uint64_t first = dynamic_blocks(begin);
  return {
      static_cast<std::int64_t>(field * coded_field_bytes(numel) + coded_scales_offset(numel) + sizeof(float) * first),
      static_cast<std::int64_t>(sizeof(float) * (dynamic_blocks(end) - first))};
}

// Elements [begin, end) of a parameter of `numel`, between the bytes of the whole and those of the piece.
void copy_codes(const at::Tensor& whole, std::uint64_t numel, const at::Tensor& piece, std::uint64_t begin,
                std::uint64_t end, bool to_piece) {
  const std::uint64_t size = end - begin;
  const auto fields = static_cast<std::uint64_t>(piece.numel()) / coded_field_bytes(size);
  for (std::uint64_t field = 0; field < fields; ++field) {
    for (const auto& at : {codes_at, scales_at}) {
      const Range in_whole = at(field, numel, begin, end);
      const Range in_piece = at(field, size, 0, size);
      at::Tensor of_whole = whole.narrow(0, in_whole.begin, in_whole.size);
      at::Tensor of_piece = piece.narrow(0, in_piece.begin, in_piece.size);
      (to_piece ? of_piece : of_whole).copy_(to_piece ? of_whole : of_piece);
    }
  }
}

}  // namespace

std::unique_ptr<OptimizerParamState> split_state(const StateFields& fields, const OptimizerParamState& whole,
                                                 const at::Tensor& parameter, const std::string& name,
                                                 std::uint64_t begin, std::uint64_t end) {
  const at::NoGradGuard no_grad;
  std::unique_ptr<OptimizerParamState> piece = whole.clone();
  for (std::size_t field = 0; field < fields.names().size(); ++field) {
    at::Tensor& tensor = fields.tensor(*piece, field);
    if (!tensor.defined()) {
      continue;
    }
    if (tensor.sizes() != parameter.sizes() || tensor.layout() != at::kStrided) {
      throw Error("state tensor " + std::string(fields.names()[field]) + " of " + name +
                  " is not of the parameter's size and layout; load or wrap the state of the same parameters");
    }
    tensor = piece_in_order_of(parameter, tensor, begin, end).clone();
  }
  return piece;
}

void join_state(const StateFields& fields, std::unique_ptr<OptimizerParamState>& whole, OptimizerParamState& piece,
                const at::Tensor& parameter, std::uint64_t begin) {
  const at::NoGradGuard no_grad;
  const bool first = whole == nullptr;
  if (first) {
    whole = piece.clone();
  }
  for (std::size_t field = 0; field < fields.names().size(); ++field) {
    const at::Tensor part = fields.tensor(piece, field);
    if (!part.defined()) {
      continue;
    }
    at::Tensor& tensor = fields.tensor(*whole, field);
    if (first) {
      tensor = at::empty_strided(parameter.sizes(), parameter.strides(), part.options());
    }
    piece_view(tensor, begin, begin + static_cast<std::uint64_t>(part.numel())).copy_(part);
  }
}

at::Tensor split_codes(const at::Tensor& codes, std::uint64_t numel, std::uint64_t begin, std::uint64_t end) {
  const std::uint64_t of_field = coded_field_bytes(numel);
  const auto bytes = static_cast<std::uint64_t>(codes.numel());
  if (codes.scalar_type() != at::kByte || codes.dim() != 1 || bytes % of_field != 0) {
    return {};
  }
  at::Tensor piece =
      at::zeros({static_cast<std::int64_t>(bytes / of_field * coded_field_bytes(end - begin))}, at::kByte);
  copy_codes(codes, numel, piece, begin, end, /*to_piece=*/true);
  return piece;
}

void join_codes(at::Tensor& whole, std::uint64_t numel, const at::Tensor& piece, std::uint64_t begin,
                std::uint64_t end) {
  if (!whole.defined()) {
    const std::uint64_t fields = static_cast<std::uint64_t>(piece.numel()) / coded_field_bytes(end - begin);
    whole = at::zeros({static_cast<std::int64_t>(fields * coded_field_bytes(numel))}, at::kByte);
  }
  copy_codes(whole, numel, piece, begin, end, /*to_piece=*/false);
}

}  // namespace spillway::optimizer
