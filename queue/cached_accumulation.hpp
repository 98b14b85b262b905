#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>

namespace spillway::queue {

struct CachedAccumulation {
  /// Encodes a micro-batch and returns its embeddings, [n, ...] for each view: the same number of views for each
  /// micro-batch, any number of rows. It is called twice, without and with gradients, and has to give the same bits
  /// both times: from the same samples, in the same modes.
  using Encode = std::function<std::vector<at::Tensor>(std::int64_t micro_batch)>;
  /// The loss, a scalar, from the embeddings of the whole batch: for each view the rows of all micro-batches in order,
  /// a leaf that requires a gradient.
  using Loss = std::function<at::Tensor(const std::vector<at::Tensor>& views)>;

  std::int64_t micro_batches = 1;
  Encode encode;
  Loss loss;
  /// What a forward pass changes: running statistics of batch-norms and their counters. They end as the first pass left
  /// them, so that they move once for each micro-batch.
  std::vector<at::Tensor> buffers;
  /// Random generators that `encode` draws from, beside LibTorch's default one on the CPU. The second pass draws the
  /// same numbers as the first (dropout, augmentation); afterwards all go on as if there had been one pass.
  std::vector<at::Generator> generators;

  /// Adds the gradient of the loss of the whole batch to the parameters, as backward() does, in the activation memory
  /// of one micro-batch: all embeddings first, then the loss and its gradient with respect to them, then each
  /// micro-batch once more, with its part of that gradient. Parameters inside of the loss (a temperature) get theirs
  /// once. With batch-norm it is the gradient of the batch whose groups are the micro-batches. Embeddings without a
  /// gradient (of a momentum encoder) may be among the views. With several ranks the collectives of the loss are all
  /// there is between them: numbers of micro-batches may differ.
  /// @returns the loss, detached.
  /// @throws ConfigError (no micro-batch, views that do not fit together), Error where the second pass gives other
  /// embeddings (the gradients are then part-added: zero them), and what `encode` and `loss` throw.
  /// Source: Gao et al. 2021, "Scaling deep contrastive learning batch size under memory limited setup".
  [[nodiscard]] at::Tensor run() const;
};

}  // namespace spillway::queue

namespace spillway {
using queue::CachedAccumulation;
}  // namespace spillway
