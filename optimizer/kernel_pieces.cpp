#include <spillway/optimizer/kernel_pieces.hpp>

#include <algorithm>

namespace spillway::optimizer {
namespace {

// Some tens of microseconds of work: far more than handing it to a thread costs, and enough pieces to even out.
constexpr std::uint64_t kPieceNumel = 65'536;

}  // namespace

void KernelPieces::run(const offload::Parallel& parallel, std::uint64_t align,
                       const std::function<void(std::size_t, offload::Range)>& body) const {
  parallel.for_ranges(numel_, kPieceNumel, [&](offload::Range piece) {
    auto end = std::upper_bound(ends_.begin(), ends_.end(), piece.begin);
    auto tensor = static_cast<std::size_t>(end - ends_.begin());
    std::uint64_t start = tensor == 0 ? 0 : ends_[tensor - 1];
    for (; tensor < ends_.size() && start < piece.end; start = ends_[tensor++]) {
      // A bound inside a tensor moves down to a multiple of `align`, for this piece and the next alike.
      const auto inside = [&](std::uint64_t bound) { return (bound - start) / align * align; };
      const std::uint64_t from = piece.begin > start ? inside(piece.begin) : 0;
      const std::uint64_t to = piece.end >= ends_[tensor] ? ends_[tensor] - start : inside(piece.end);
      if (from < to) {
        body(tensor, {from, to});
      }
    }
  });
}

}  // namespace spillway::optimizer
