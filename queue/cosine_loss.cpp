#include <utility>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/ops/where.h>

#include <spillway/queue/cosine_loss.hpp>
#include <spillway/queue/differentiable.hpp>
#include <spillway/queue/loss_arguments.hpp>

namespace spillway::queue {

namespace {

constexpr double kShortest = 1e-12;

/// Rows of length 1 or 0, and one over the length they had, or 0.
struct Directions {
  at::Tensor rows;     // [N, D]
  at::Tensor inverse;  // [N, 1]
};

Directions directions(const at::Tensor& rows) {
  if (rows.numel() == 0) return {rows, rows.sum(1, /*keepdim=*/true)};
  // Divided by the largest element first, so that squares of small and large ones stay in range.
  const at::Tensor largest = rows.abs().amax(1, /*keepdim=*/true);
  const at::Tensor scaled = rows / at::where(largest.gt(0), largest, 1);
  const at::Tensor length = scaled.norm(2, {1}, /*keepdim=*/true).mul_(largest);
  const at::Tensor counts = length.ge(kShortest);
  const at::Tensor inverse = at::where(counts, length.reciprocal(), 0);
  return {at::where(counts, rows.mul(inverse), 0), inverse};
}

at::Tensor mean_or_zero(const at::Tensor& rows) { return rows.size(0) == 0 ? rows.sum() : rows.mean(); }

}  // namespace

at::Tensor negative_cosine(const at::Tensor& p, const at::Tensor& z) {
  constexpr char kName[] = "negative_cosine";
  check_rows(kName, "p", p, {});
  check_rows(kName, "z", z, {p.size(0), p.size(1), ": one target for each prediction"});
  at::Tensor rows;
  Derivative derivative{"negative_cosine", {p}, {}, {}};
  {
    const PlainArithmetic plain;
    const at::ScalarType dtype = compute_dtype(p.scalar_type());
    const Directions of_p = directions(p.to(dtype));
    const at::Tensor of_z = directions(z.to(dtype)).rows;
    const at::Tensor cosine = of_p.rows.mul(of_z).sum(1, /*keepdim=*/true);
    rows = cosine.squeeze(1).neg();
    // The derivative of the cosine with respect to p: what of z is orthogonal to p, over the length of p.
    derivative.saved = {of_z.sub(of_p.rows.mul(cosine)).mul_(of_p.inverse)};
  }
  derivative.function = [](const at::Tensor& d_rows, const std::vector<at::Tensor>& saved,
                           const std::vector<bool>&) -> std::vector<at::Tensor> {
    return {saved[0].mul(d_rows.unsqueeze(1)).neg_()};
  };
  return differentiable(std::move(rows), std::move(derivative));
}

at::Tensor byol_loss(const at::Tensor& p1, const at::Tensor& p2, const at::Tensor& z1, const at::Tensor& z2) {
  return mean_or_zero((negative_cosine(p1, z2) + negative_cosine(p2, z1)) * 2 + 4);
}

at::Tensor simsiam_loss(const at::Tensor& p1, const at::Tensor& p2, const at::Tensor& z1, const at::Tensor& z2) {
  return mean_or_zero((negative_cosine(p1, z2) + negative_cosine(p2, z1)) / 2);
}

}  // namespace spillway::queue
