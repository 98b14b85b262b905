#include <spillway/optimizer/saved_pieces.hpp>

#include <algorithm>
#include <charconv>
#include <string_view>
#include <utility>

#include <ATen/ops/cat.h>
#include <ATen/ops/empty_strided.h>

#include <spillway/optimizer/piece_state.hpp>

namespace spillway::optimizer {
namespace {

struct PieceName {
  std::string of;          // "0/3.exp_avg"
  std::int64_t begin = 0;  // Of "0/3[16384:32768].exp_avg".
  std::int64_t end = -1;   // -1: all of the parameter.
};

PieceName parse_name(const std::string& name) {
  const std::size_t open = name.find('[');
  const std::size_t colon = name.find(':', open);
  const std::size_t close = name.find(']', colon);
  if (open == name.npos || colon == name.npos || close == name.npos) return {name};
  PieceName piece{name.substr(0, open) + name.substr(close + 1)};
  std::from_chars(name.data() + open + 1, name.data() + colon, piece.begin);
  std::from_chars(name.data() + colon + 1, name.data() + close, piece.end);
  return piece;
}

/// A parameter's values, in the order of its own sizes, in that of its memory.
at::Tensor in_memory_order(const at::Tensor& flat, const at::Tensor& parameter) {
  if (parameter.is_contiguous()) return flat;
  at::Tensor values = at::empty_strided(parameter.sizes(), parameter.strides(), flat.options());
  values.copy_(flat.view(parameter.sizes()));
  return values.as_strided({values.numel()}, {1});
}

/// Undoes in_memory_order, into a tensor of the parameter's sizes.
at::Tensor shaped(const at::Tensor& flat, const at::Tensor& parameter) {
  if (parameter.is_contiguous()) return flat.view(parameter.sizes());
  at::Tensor values = at::empty_strided(parameter.sizes(), parameter.strides(), flat.options());
  values.as_strided({values.numel()}, {1}).copy_(flat);
  return values;
}

}  // namespace

void SavedPieces::add(const std::string& name, std::int64_t numel, at::ScalarType dtype, Read read) {
  const PieceName piece = parse_name(name);
  std::vector<Saved>& pieces = saved_[piece.of];
  const auto same = [&](const Saved& other) { return other.begin == piece.begin && other.end == piece.end; };
  if (std::ranges::none_of(pieces, same)) pieces.push_back({piece.begin, piece.end, numel, dtype, std::move(read)});
}

at::Tensor SavedPieces::read(const StatePiece& piece) const {
  const PieceName wanted = parse_name(piece.name);
  const auto found = saved_.find(wanted.of);
  if (found == saved_.end()) return {};
  std::vector<const Saved*> pieces;
  for (const Saved& saved : found->second) {
    if (saved.begin == wanted.begin && saved.end == wanted.end) {
      const at::Tensor flat = saved.read(0, saved.numel);
      const bool like = wanted.end < 0 && saved.dtype != at::kByte && flat.numel() == piece.parameter.numel();
      return like ? flat.view(piece.parameter.sizes()) : flat;
    }
    pieces.push_back(&saved);
  }
  std::ranges::sort(pieces, {}, &Saved::begin);
  return assemble(pieces, piece);
}

at::Tensor SavedPieces::assemble(const std::vector<const Saved*>& pieces, const StatePiece& wanted) const {
  const auto all = wanted.parameter.numel();
  const auto begin = static_cast<std::int64_t>(wanted.begin);
  const auto end = static_cast<std::int64_t>(wanted.end);
  std::vector<at::Tensor> parts;
  at::Tensor codes;
  std::int64_t covered = begin;
  bool are_codes = false;
  for (const Saved* const saved : pieces) {
    const std::int64_t saved_end = saved->end < 0 ? all : saved->end;
    const std::int64_t from = std::max(begin, saved->begin);
    const std::int64_t to = std::min(end, saved_end);
    if (from >= to) continue;
    if (from != covered) return {};
    covered = to;
    are_codes = saved->dtype == at::kByte;
    const auto offset = [](std::int64_t at, std::int64_t base) { return static_cast<std::uint64_t>(at - base); };
    if (are_codes) {
      const at::Tensor part = split_codes(saved->read(0, saved->numel), offset(saved_end, saved->begin),
                                          offset(from, saved->begin), offset(to, saved->begin));
      if (!part.defined()) return {};
      join_codes(codes, offset(end, begin), part, offset(from, begin), offset(to, begin));
    } else if (saved->end < 0) {
      const bool contiguous = wanted.parameter.is_contiguous();
      parts.push_back(contiguous ? saved->read(from, to - from)
                                 : in_memory_order(saved->read(0, all), wanted.parameter).narrow(0, from, to - from));
    } else {
      parts.push_back(saved->read(from - saved->begin, to - from));
    }
  }
  if (covered != end) return {};
  if (are_codes) return codes;
  const at::Tensor flat = at::cat(parts);
  return begin == 0 && end == all && wanted.name == parse_name(wanted.name).of ? shaped(flat, wanted.parameter) : flat;
}

}  // namespace spillway::optimizer
