#pragma once

#include <ATen/core/Tensor.h>

namespace spillway::queue {

/// [N]: minus the cosine between p_i and z_i. The targets z are constants: no gradient flows to them (stop-gradient),
/// whether they require one or not. Lengths are taken in float32 (float64 for float64), also of denormal rows and under
/// autocast; a row shorter than 1e-12, of p or z, counts as zero: its value and its gradient are 0.
/// @param p  [N, D], floating point, on the CPU; the gradient comes back in its dtype.
/// @param z  as p.
/// @throws ConfigError (shape, dtype, device: names wanted and got). There is no second derivative.
[[nodiscard]] at::Tensor negative_cosine(const at::Tensor& p, const at::Tensor& z);

/// BYOL: the mean over samples of |p̂1 - ẑ2|² + |p̂2 - ẑ1|², which is 4 - 2 cos(p1, z2) - 2 cos(p2, z1); 0 for N = 0.
/// @param p1, p2  predictions of the online network for the two views. @param z1, z2  projections of the target
/// network. With several ranks multiply by rank_share(). @throws as negative_cosine.  Source: Grill et al. 2020, eq. 2.
[[nodiscard]] at::Tensor byol_loss(const at::Tensor& p1, const at::Tensor& p2, const at::Tensor& z1,
                                   const at::Tensor& z2);

/// SimSiam: the mean over samples of -(cos(p1, z2) + cos(p2, z1)) / 2; 0 for N = 0.
/// @param p1, p2  predictions for the two views. @param z1, z2  projections of the same network.
/// With several ranks multiply by rank_share(). @throws as negative_cosine.  Source: Chen & He 2021, eq. 2.
[[nodiscard]] at::Tensor simsiam_loss(const at::Tensor& p1, const at::Tensor& p2, const at::Tensor& z1,
                                      const at::Tensor& z2);

}  // namespace spillway::queue

namespace spillway {
using queue::byol_loss;
using queue::negative_cosine;
using queue::simsiam_loss;
}  // namespace spillway
