#include "fused_adamw_peer.hpp"

#include <vector>

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/_fused_adamw.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/full.h>

namespace spillway::bench {

struct FusedAdamwPeer::Lists {
  std::vector<at::Tensor> weights, gradients, exp_avgs, exp_avg_sqs, steps;
};

FusedAdamwPeer::FusedAdamwPeer(const AdamMemory& memory, std::uint64_t tensors) : lists_(std::make_unique<Lists>()) {
  const optimizer::AdamStep unused;
  const auto type = memory.types.gradient == optimizer::ElementType::kFloat32 ? at::kFloat : at::kBFloat16;
  for (const optimizer::AdamTensor& part : memory.parts(tensors, unused)) {
    const auto tensor = [&](void* data) { return at::from_blob(data, {static_cast<std::int64_t>(part.numel)}, type); };
    lists_->weights.push_back(tensor(part.weight));
    lists_->gradients.push_back(tensor(const_cast<void*>(part.gradient)));
    lists_->exp_avgs.push_back(tensor(part.exp_avg));
    lists_->exp_avg_sqs.push_back(tensor(part.exp_avg_sq));
    lists_->steps.push_back(at::full({}, 10.0F));
  }
}

FusedAdamwPeer::~FusedAdamwPeer() = default;

void FusedAdamwPeer::step() {
  const at::NoGradGuard no_grad;
  at::_fused_adamw_(lists_->weights, lists_->gradients, lists_->exp_avgs, lists_->exp_avg_sqs, {}, lists_->steps, 1e-3,
                    0.9, 0.999, 1e-2, 1e-8, false, false);
}

}  // namespace spillway::bench
