#include "src/streamed_run.hpp"

namespace spillway::test {

app::Config streamed_config(const TempDir& folder) {
  app::Config config;
  config.epochs = 3;
  config.train_batch_size = 32;
  config.micro_batch_size_per_gpu = 16;
  config.gradient_accumulation_steps = 2;
  config.out = folder / "run";
  config.data.source = "synthetic";
  config.data.synthetic = {.images = 250, .classes = 5, .side = 8};
  config.encoder.kind = app::EncoderKind::kMlp;
  config.encoder.hidden = {64, 64, 64, 64};
  config.contrastive.projection_hidden_dim = 64;
  config.contrastive.projection_dim = 16;
  config.contrastive.queue_size = 256;
  config.contrastive.bank.segment_rows = 32;
  config.contrastive.bank.device = app::OffloadDevice::kNvme;
  config.contrastive.bank.host_bytes = 256 * 16 * 4 + 6 * 4096;
  config.zero.sub_group_size = 5000;
  config.zero.offload_optimizer.device = app::OffloadDevice::kNvme;
  config.offload.host_bytes = config.contrastive.bank.host_bytes + 5 * 36864;  // Four staging buffers, one block.
  config.offload.nvme_paths = {folder.path()};
  config.aio.queue_depth = 8;  // Set, so that no trial of the disk is made.
  return config;
}

}  // namespace spillway::test
