#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

namespace spillway::app {

enum class OptimizerKind : std::uint8_t { kAdam, kAdamW, kSgd };
enum class OffloadDevice : std::uint8_t { kNone, kCpu, kNvme };
enum class EngineChoice : std::uint8_t { kAuto, kIoUring, kThreads };
enum class BankDtype : std::uint8_t { kFp16, kBf16, kFp32, kFp64 };
enum class EncoderKind : std::uint8_t { kMlp, kSmallCnn };
enum class Method : std::uint8_t { kMoco, kSimClr, kSupCon, kByol, kSimSiam };
enum class HeadKind : std::uint8_t { kMlp, kBatchNorm, kBatchNormOutput };

/// `optimizer`: type and params. Only the fields of the chosen type have an effect; the others keep their defaults.
struct OptimizerConfig {
  OptimizerKind kind = OptimizerKind::kAdamW;
  double lr = 1e-3;
  std::array<double, 2> betas = {0.9, 0.999};
  double eps = 1e-8;
  double weight_decay = 0.0;
  bool amsgrad = false;
  bool adam_w_mode = true;  ///< Type Adam: decay the weights apart from the gradient, as AdamW does.
  double momentum = 0.0;    ///< SGD.
  double dampening = 0.0;   ///< SGD.
  bool nesterov = false;    ///< SGD.

  /// Whether the update to run is AdamW's, whatever the type is called.
  [[nodiscard]] bool decoupled_decay() const noexcept {
    return kind == OptimizerKind::kAdamW || (kind == OptimizerKind::kAdam && adam_w_mode);
  }
  bool operator==(const OptimizerConfig&) const = default;
};

/// `zero_optimization.offload_optimizer`. Its nvme_path is resolved into OffloadConfig::nvme_paths.
struct OffloadOptimizerConfig {
  OffloadDevice device = OffloadDevice::kNone;
  std::uint64_t buffer_count = 4;  ///< Staging buffers.
  bool pin_memory = false;         ///< Page-lock buffers where there is a GPU.
  bool operator==(const OffloadOptimizerConfig&) const = default;
};

struct ZeroConfig {
  std::uint64_t stage = 0;                    ///< 0, 1 or 2; 3 is resolved to 2.
  std::uint64_t sub_group_size = 1000000000;  ///< Elements per step of the optimizer's pipeline.
  OffloadOptimizerConfig offload_optimizer{};
  bool operator==(const ZeroConfig&) const = default;
};

struct AioConfig {
  std::uint64_t block_size = 0;   ///< Bytes per transfer, a multiple of 4096. Both 0: found by a short trial at start.
  std::uint64_t queue_depth = 0;  ///< Transfers in flight.
  EngineChoice engine = EngineChoice::kAuto;
  bool operator==(const AioConfig&) const = default;
};

/// `contrastive.bank`: where the negatives lie.
struct BankConfig {
  BankDtype dtype = BankDtype::kFp16;
  std::uint64_t segment_rows = 256;
  OffloadDevice device = OffloadDevice::kNone;
  std::uint64_t host_bytes = 0;  ///< Host memory that the bank may use; 0: no limit beside offload.host_bytes.
  bool operator==(const BankConfig&) const = default;
};

/// The defaults are MoCo's; apply_method_defaults() has those of the other methods.
struct ContrastiveConfig {
  double temperature = 0.2;
  std::uint64_t queue_size = 2048;  ///< Rows in the bank.
  double momentum = 0.99;           ///< Of MoCo's key encoder and BYOL's target: k = momentum * k + (1 - momentum) * q.
  HeadKind projection_head = HeadKind::kMlp;
  std::uint64_t projection_hidden_dim = 256;
  std::uint64_t projection_dim = 64;
  std::uint64_t predictor_hidden_dim = 256;  ///< BYOL and SimSiam.
  std::uint64_t batch_norm_groups = 4;
  BankConfig bank{};
  bool operator==(const ContrastiveConfig&) const = default;
};

/// `data.augment`: the grey-digit recipe. Every magnitude is the half-width of a uniform distribution, unless it says
/// otherwise; zeros (and a scale of 1 to 1) leave the image unchanged.
struct AugmentConfig {
  bool enabled = true;
  double rotation_degrees = 25.0;
  double translate = 0.12;  ///< Share of the image's side.
  double scale_min = 0.8;
  double scale_max = 1.2;
  double shear_degrees = 15.0;
  double contrast = 0.3;    ///< The image is multiplied by 1 ± contrast.
  double brightness = 0.1;  ///< Then this is added, ± brightness.
  double noise = 0.1;       ///< Standard deviation of the Gaussian noise, itself uniform in 0 … noise.
  bool operator==(const AugmentConfig&) const = default;
};

struct SyntheticConfig {
  std::uint64_t images = 2000;
  std::uint64_t classes = 10;
  std::uint64_t side = 16;  ///< Pixels.
  bool operator==(const SyntheticConfig&) const = default;
};

struct DataConfig {
  std::string source = "mnist5k";  ///< mnist5k, digits, synthetic, or the path of a CSV or IDX file or an IDX folder.
  double train_fraction = 0.8;     ///< Share of each class that is trained on; unused where the source has a test set.
  bool drop_last = false;          ///< `dataloader_drop_last`: whether a last partial batch is left out.
  AugmentConfig augment{};
  SyntheticConfig synthetic{};
  bool operator==(const DataConfig&) const = default;
};

struct EncoderConfig {
  EncoderKind kind = EncoderKind::kSmallCnn;
  std::vector<std::uint64_t> channels = {16, 32, 64};  ///< small_cnn: one convolution each.
  std::vector<std::uint64_t> hidden = {512, 256};      ///< mlp: one layer each; the last is the feature's width.
  bool operator==(const EncoderConfig&) const = default;
};

/// `offload`: budgets per rank, and where disk blocks go.
struct OffloadConfig {
  std::uint64_t host_bytes = 1ULL << 30;
  std::uint64_t disk_bytes = 4ULL << 30;
  OffloadDevice gradients = OffloadDevice::kNone;  ///< Where gradients are added up; none: in place.
  std::vector<std::string> nvme_paths;  ///< Folders; the run's folder where none is named and something goes to NVMe.
  bool operator==(const OffloadConfig&) const = default;
};

/// `evaluation`: few-label accuracy by logistic regression on frozen features.
struct EvaluationConfig {
  std::uint64_t labels_per_class = 10;
  std::uint64_t draws = 5;
  double l2 = 1.0;  ///< Weight of ½·|W|² beside the sum of the cross-entropies.
  bool operator==(const EvaluationConfig&) const = default;
};

/// Everything that a training run is made of. Plain data; load_config checks it.
struct Config {
  Method method = Method::kMoco;
  std::uint64_t seed = 0;
  std::uint64_t epochs = 5;  ///< Exactly one of epochs and steps is not 0.
  std::uint64_t steps = 0;
  std::string out;  ///< Folder of the run.
  bool deterministic = false;

  std::uint64_t train_batch_size = 128;          ///< Of all ranks, per optimizer step.
  std::uint64_t micro_batch_size_per_gpu = 128;  ///< Of one rank, per forward pass.
  std::uint64_t gradient_accumulation_steps = 1;
  std::uint64_t steps_per_print = 10;
  double gradient_clipping = 1.0;  ///< Global norm; 0: none.

  OptimizerConfig optimizer;
  ZeroConfig zero;
  AioConfig aio;
  ContrastiveConfig contrastive;
  DataConfig data;
  EncoderConfig encoder;
  OffloadConfig offload;
  EvaluationConfig evaluation;

  /// Whether the method compares with a bank of negatives.
  [[nodiscard]] bool has_bank() const noexcept { return method == Method::kMoco; }
  bool operator==(const Config&) const = default;
};

}  // namespace spillway::app
