#include <spillway/app/methods/moco.hpp>

#include <utility>

#include <spillway/queue/streaming_loss.hpp>

namespace spillway::app {
namespace {

at::ScalarType scalar_type(BankDtype dtype) {
  switch (dtype) {
    case BankDtype::kFp16:
      return at::kHalf;
    case BankDtype::kBf16:
      return at::kBFloat16;
    case BankDtype::kFp32:
      return at::kFloat;
    case BankDtype::kFp64:
      return at::kDouble;
  }
  return at::kHalf;
}

}  // namespace

queue::BankOptions bank_options(const Config& config) {
  const BankConfig& bank = config.contrastive.bank;
  queue::BankOptions options;
  options.capacity = static_cast<std::int64_t>(config.contrastive.queue_size);
  options.dim = static_cast<std::int64_t>(config.contrastive.projection_dim);
  options.dtype = scalar_type(bank.dtype);
  options.segment_rows = static_cast<std::int64_t>(bank.segment_rows);
  options.disk_allowed = bank.device == OffloadDevice::kNvme;
  const bool limited = bank.device != OffloadDevice::kNone && bank.host_bytes != 0;
  options.host_bytes = limited ? bank.host_bytes : config.offload.host_bytes;
  return options;
}

Moco::Moco(const Config& config, ImageGeometry geometry, std::shared_ptr<offload::Tiers> tiers)
    : TrainingMethod({config.encoder, config.contrastive, geometry}),
      temperature_(config.contrastive.temperature),
      momentum_encoder_({config.encoder, config.contrastive, geometry}, network(), config.contrastive.momentum),
      bank_(std::move(tiers), bank_options(config)),
      window_(bank_) {}

at::Tensor Moco::loss(const ViewPair& batch) {
  const at::Tensor q = network().project(batch.view0);
  const at::Tensor k = momentum_encoder_.encode(batch.view1, shuffled_rows(batch.view1.size(0), batch.key_order));
  const at::Tensor loss = queue::info_nce(q, k, bank_, temperature_).loss;
  window_.add(k);
  return loss;
}

void Moco::finish_window(bool stepped) {
  if (stepped) momentum_encoder_.follow();
  window_.finish(stepped);
}

}  // namespace spillway::app
