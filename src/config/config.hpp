#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace spillway::app {

enum class OptimizerKind : std::uint8_t { kAdam, kAdamW, kSgd, kAdagrad, kRmsprop, kLars };
enum class SchedulerKind : std::uint8_t { kNone, kWarmup, kWarmupDecay, kWarmupCosine, kOneCycle };
enum class WarmupCurve : std::uint8_t { kLog, kLinear };
enum class AutocastDtype : std::uint8_t { kBf16, kFp16 };
enum class OffloadDevice : std::uint8_t { kNone, kCpu, kNvme };
enum class EngineChoice : std::uint8_t { kAuto, kIoUring, kThreads };
/// How the optimizer's state lies in its blocks; kInt8: 8-bit codes with a float32 for every 256 of them.
enum class StateDtype : std::uint8_t { kFp32, kBf16, kInt8 };
enum class BankDtype : std::uint8_t { kFp16, kBf16, kFp32, kFp64, kInt8 };
enum class EncoderKind : std::uint8_t { kMlp, kSmallCnn, kResNet18, kResNet34, kResNet50 };
enum class ViewRecipe : std::uint8_t { kAuto, kDigits, kSimClr, kMocoV2, kByol };
enum class EncoderStem : std::uint8_t { kAuto, kImageNet, kCifar };
enum class Method : std::uint8_t { kMoco, kSimClr, kSupCon, kByol, kSimSiam };
enum class MomentumSchedule : std::uint8_t { kConstant, kCosine };
enum class Accumulation : std::uint8_t { kPlain, kCached };
enum class QueueGrowth : std::uint8_t { kLinear, kGeometric };
enum class HeadKind : std::uint8_t { kMlp, kBatchNorm, kBatchNormOutput };

/// `optimizer`: type and params. Only the fields of the chosen type have an effect; the others keep their defaults.
struct OptimizerConfig {
  OptimizerKind kind = OptimizerKind::kAdamW;
  double lr = 1e-3;
  std::array<double, 2> betas = {0.9, 0.999};
  double eps = 1e-8;
  double weight_decay = 0.0;
  bool amsgrad = false;
  bool adam_w_mode = true;                 ///< Type Adam: decay the weights apart from the gradient, as AdamW does.
  double momentum = 0.0;                   ///< SGD, RMSprop and LARS.
  double dampening = 0.0;                  ///< SGD.
  bool nesterov = false;                   ///< SGD and LARS.
  double lr_decay = 0.0;                   ///< Adagrad.
  double initial_accumulator_value = 0.0;  ///< Adagrad.
  double alpha = 0.99;                     ///< RMSprop: of the mean of squares.
  double trust_coefficient = 0.001;        ///< LARS: share of a parameter's length that a step of rate 1 goes.
  bool centered = false;                   ///< RMSprop: divide by the variance, not by the mean of squares.

  [[nodiscard]] bool is_adam() const noexcept { return kind == OptimizerKind::kAdam || kind == OptimizerKind::kAdamW; }
  /// Whether the update to run is AdamW's, whatever the type is called.
  [[nodiscard]] bool decoupled_decay() const noexcept {
    return kind == OptimizerKind::kAdamW || (kind == OptimizerKind::kAdam && adam_w_mode);
  }
  bool operator==(const OptimizerConfig&) const = default;
};

/// `scheduler`: type and params, with DeepSpeed's names. What is nothing is decided where the run is known; only the
/// fields of the chosen type have an effect. LrSchedule has the formulas.
struct SchedulerConfig {
  SchedulerKind kind = SchedulerKind::kNone;
  std::optional<std::uint64_t> total_num_steps;          ///< Nothing: those of the run.
  std::optional<std::uint64_t> warmup_num_steps = 1000;  ///< Nothing: a tenth of the run, 1000 at most.
  WarmupCurve warmup_type = WarmupCurve::kLog;
  double warmup_min_lr = 0.0;
  std::optional<double> warmup_max_lr;  ///< Nothing: the optimizer's.
  double warmup_min_ratio = 0.0;        ///< WarmupCosineLR: shares of the optimizer's rate.
  double cos_min_ratio = 1e-4;

  double cycle_min_lr = 0.0;  ///< From here on OneCycle; this and the next have to be given.
  double cycle_max_lr = 0.0;
  std::uint64_t cycle_first_step_size = 2000;
  std::optional<std::uint64_t> cycle_second_step_size;  ///< Nothing: as the first.
  std::uint64_t cycle_first_stair_count = 0;            ///< 0: no stairs.
  std::optional<std::uint64_t> cycle_second_stair_count;
  std::uint64_t decay_step_size = 0;  ///< 0: no decay after the cycle.
  double decay_lr_rate = 0.0;
  bool cycle_momentum = true;  ///< Of optimizers with betas.
  double cycle_min_mom = 0.8;
  double cycle_max_mom = 0.9;
  double decay_mom_rate = 0.0;
  bool operator==(const SchedulerConfig&) const = default;
};

/// `fp16`: 16-bit parameters with float32 masters and a loss scale.
struct Fp16Config {
  bool enabled = false;
  double loss_scale = 0.0;  ///< 0: dynamic.
  std::uint64_t initial_scale_power = 16;
  std::uint64_t loss_scale_window = 1000;  ///< Steps without an overflow after which the scale doubles.
  std::uint64_t hysteresis = 2;
  bool consecutive_hysteresis = false;
  double min_loss_scale = 1.0;
  bool operator==(const Fp16Config&) const = default;
};

/// `bf16`: 16-bit parameters with float32 masters, without a scale.
struct Bf16Config {
  bool enabled = false;
  bool check_grad_overflow = true;     ///< A step whose gradients are not finite is skipped; else it is an error.
  bool bf16_optimizer_states = false;  ///< Moments and sums in bf16.
  bool operator==(const Bf16Config&) const = default;
};

/// `torch_autocast`: float32 parameters, 16-bit arithmetic where that is safe.
struct AutocastConfig {
  bool enabled = false;
  AutocastDtype dtype = AutocastDtype::kBf16;
  bool operator==(const AutocastConfig&) const = default;
};

/// `zero_optimization.offload_optimizer`. Its nvme_path is resolved into OffloadConfig::nvme_paths.
struct OffloadOptimizerConfig {
  OffloadDevice device = OffloadDevice::kNone;
  std::uint64_t buffer_count = 4;  ///< Staging buffers.
  bool pin_memory = false;         ///< Page-lock buffers where there is a GPU.
  double ratio = 1.0;              ///< Most of the state that may be offloaded, as a share.
  bool operator==(const OffloadOptimizerConfig&) const = default;
};

struct ZeroConfig {
  std::uint64_t stage = 0;                       ///< 0, 1 or 2; 3 is resolved to 2.
  std::uint64_t sub_group_size = 1000000000;     ///< Elements per step of the optimizer's pipeline.
  std::uint64_t reduce_bucket_size = 500000000;  ///< Elements of gradients that travel together at most.
  OffloadOptimizerConfig offload_optimizer{};
  bool operator==(const ZeroConfig&) const = default;
};

struct AioConfig {
  std::uint64_t block_size = 0;   ///< Bytes per transfer, a multiple of 4096. Both 0: found by a short trial at start.
  std::uint64_t queue_depth = 0;  ///< Transfers in flight.
  std::uint64_t intra_op_parallelism = 1;  ///< Swap files and engines for each folder, striped over.
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

/// `contrastive.queue_schedule`: the bank's length from `first_rows` at the first step to queue_size at step `steps`.
struct QueueScheduleConfig {
  std::uint64_t first_rows = 0;  ///< 0: the bank has its length from the start.
  std::uint64_t steps = 0;
  QueueGrowth growth = QueueGrowth::kLinear;
  bool operator==(const QueueScheduleConfig&) const = default;
};

/// The defaults are MoCo's; apply_method_defaults() has those of the other methods.
struct ContrastiveConfig {
  double temperature = 0.2;
  bool learnable_temperature = false;  ///< Train it too, from there on, down to 0.01 at least.
  std::uint64_t queue_size = 2048;     ///< Rows in the bank.
  double momentum = 0.99;  ///< Of MoCo's key encoder and BYOL's target: k = momentum * k + (1 - momentum) * q.
  MomentumSchedule momentum_schedule = MomentumSchedule::kConstant;  ///< kCosine: up to 1 at the end of the run.
  Accumulation accumulation = Accumulation::kPlain;  ///< kCached: rows of all micro-batches of a step are compared.
  bool exclude_same_class = false;                   ///< Rows of the bank with the query's label are no negatives.
  QueueScheduleConfig queue_schedule{};
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

inline constexpr double kBlurSigmaMin = 0.1;  // Of all recipes, in pixels.
inline constexpr double kBlurSigmaMax = 2.0;

/// `data.view`: what differs from a recipe of random crops. Nothing: the recipe's (CropAugmentation has the meanings).
struct ViewConfig {
  std::optional<double> crop_scale_min;
  std::optional<double> crop_scale_max;
  std::optional<double> flip_probability;
  std::optional<double> jitter_probability;
  std::optional<double> brightness;
  std::optional<double> contrast;
  std::optional<double> saturation;
  std::optional<double> hue;
  std::optional<double> grayscale_probability;
  std::optional<double> blur_probability;
  std::optional<double> blur_sigma_min;
  std::optional<double> blur_sigma_max;
  std::optional<double> solarize_probability;
  std::optional<double> solarize_threshold;
  bool operator==(const ViewConfig&) const = default;
};

struct SyntheticConfig {
  std::uint64_t images = 2000;
  std::uint64_t classes = 10;
  std::uint64_t side = 16;  ///< Pixels.
  bool operator==(const SyntheticConfig&) const = default;
};

struct DataConfig {
  /// mnist5k, digits, synthetic, or a path: a CSV or IDX file, a folder of IDX files, of CIFAR's, or of image files.
  std::string source = "mnist5k";
  double train_fraction = 0.8;      ///< Share of each class that is trained on; unused where the source has a test set.
  bool drop_last = false;           ///< `dataloader_drop_last`: whether a last partial batch is left out.
  std::uint64_t image_size = 224;   ///< Pixels a side that image files are brought to.
  bool grey = false;                ///< Colour images are made grey.
  bool check = true;                ///< Decode every image file once at the start, and leave damaged ones out,
  std::uint64_t damaged_max = 100;  ///< up to so many.
  std::uint64_t workers = 2;        ///< Threads that make views; 0: they are made when they are needed.
  std::uint64_t prefetch = 2;       ///< Micro-batches that are made ahead at most.
  ViewRecipe recipe = ViewRecipe::kAuto;  ///< kAuto: kDigits for grey images in memory, else by the method.
  AugmentConfig augment{};
  ViewConfig view{};
  SyntheticConfig synthetic{};
  bool operator==(const DataConfig&) const = default;
};

struct EncoderConfig {
  EncoderKind kind = EncoderKind::kSmallCnn;
  std::vector<std::uint64_t> channels = {16, 32, 64};  ///< small_cnn: one convolution each.
  std::vector<std::uint64_t> hidden = {512, 256};      ///< mlp: one layer each; the last is the feature's width.
  EncoderStem stem = EncoderStem::kAuto;               ///< ResNets; auto: kCifar for images of up to 64 pixels a side.
  bool zero_init_residual = false;                     ///< ResNets: their blocks start as identities.
  bool checkpointing = false;  ///< ResNets: each stage runs again in backward in place of keeping its activations.
  /// Parts of names: layers with such a parameter keep float32 in runs of 16-bit parameters. The default: batch-norms.
  std::vector<std::string> float32_layers = {"bn", "downsample.1"};

  [[nodiscard]] bool is_resnet() const noexcept { return kind >= EncoderKind::kResNet18; }
  bool operator==(const EncoderConfig&) const = default;
};

/// `offload`: budgets per rank, and where disk blocks go.
struct OffloadConfig {
  std::uint64_t host_bytes = 1ULL << 30;
  std::uint64_t disk_bytes = 4ULL << 30;
  OffloadDevice gradients = OffloadDevice::kNone;  ///< Where gradients are added up; none: in place.
  StateDtype state_dtype = StateDtype::kFp32;      ///< Others than float32 are the fused kernels'.
  std::vector<std::string> nvme_paths;  ///< Folders; the run's folder where none is named and something goes to NVMe.
  bool operator==(const OffloadConfig&) const = default;
};

/// `evaluation`: accuracies of frozen features, by logistic regression on a few labels and by nearest neighbours.
struct EvaluationConfig {
  std::uint64_t labels_per_class = 10;
  std::uint64_t draws = 5;
  double l2 = 1.0;  ///< Weight of ½·|W|² beside the sum of the cross-entropies.
  std::uint64_t knn_neighbours = 200;
  double knn_temperature = 0.07;
  std::uint64_t every = 0;  ///< Epochs from one measurement to the next while training; 0: none on the way.
  bool operator==(const EvaluationConfig&) const = default;
};

/// `checkpoint`: when the run is written down, and what of it is kept. It also is at its end and after a signal.
struct CheckpointConfig {
  std::uint64_t every = 0;       ///< Optimizer steps from one to the next; 0: at the end of each epoch.
  std::uint64_t keep_last = 2;   ///< The newest ones are kept,
  std::uint64_t keep_every = 0;  ///< and those of steps that are multiples of this; 0: of none.
  bool operator==(const CheckpointConfig&) const = default;
};

/// `ranks`: of a run on several.
struct RanksConfig {
  std::uint64_t timeout_s = 600;  ///< How long one waits for the others.
  bool operator==(const RanksConfig&) const = default;
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
  double gradient_clipping = 1.0;     ///< Global norm; 0: none.
  bool wall_clock_breakdown = false;  ///< Show the time of each part of a step, every steps_per_print steps.
  bool memory_breakdown = false;      ///< The same of memory.
  bool dump_state = false;            ///< Show the resolved configuration before the first step.

  OptimizerConfig optimizer;
  SchedulerConfig scheduler;
  Fp16Config fp16;
  Bf16Config bf16;
  AutocastConfig torch_autocast;
  ZeroConfig zero;
  AioConfig aio;
  ContrastiveConfig contrastive;
  DataConfig data;
  EncoderConfig encoder;
  OffloadConfig offload;
  EvaluationConfig evaluation;
  CheckpointConfig checkpoint;
  RanksConfig ranks;

  /// Whether the method compares with a bank of negatives.
  [[nodiscard]] bool has_bank() const noexcept { return method == Method::kMoco; }
  /// Whether rows of a batch are one another's negatives.
  [[nodiscard]] bool has_batch_negatives() const noexcept {
    return method == Method::kSimClr || method == Method::kSupCon;
  }
  [[nodiscard]] bool has_temperature() const noexcept { return has_bank() || has_batch_negatives(); }
  [[nodiscard]] bool has_momentum_encoder() const noexcept {
    return method == Method::kMoco || method == Method::kByol;
  }
  /// Whether parameters are of 16 bits, with masters.
  [[nodiscard]] bool has_16_bit_parameters() const noexcept { return fp16.enabled || bf16.enabled; }
  /// That of `offload.state_dtype`, or bf16 where `bf16.bf16_optimizer_states` is in force.
  [[nodiscard]] StateDtype state_dtype() const noexcept {
    return bf16.enabled && bf16.bf16_optimizer_states ? StateDtype::kBf16 : offload.state_dtype;
  }
  /// Whether fused kernels update the parameters: their state lies in blocks, wherever that is.
  [[nodiscard]] bool has_fused_update() const noexcept {
    return has_16_bit_parameters() || state_dtype() != StateDtype::kFp32;
  }
  [[nodiscard]] bool has_loss_scale() const noexcept {
    return fp16.enabled || (torch_autocast.enabled && torch_autocast.dtype == AutocastDtype::kFp16);
  }
  /// Whether a step whose gradients are not finite is skipped.
  [[nodiscard]] bool may_skip_steps() const noexcept {
    return has_loss_scale() || (bf16.enabled && bf16.check_grad_overflow);
  }
  /// Whether each of `world_size` ranks keeps a share of the optimizer's state and gradients, or all have all of it.
  [[nodiscard]] bool shards(std::uint64_t world_size) const noexcept {
    return world_size > 1 && (zero.stage > 0 || offload.gradients != OffloadDevice::kNone);
  }
  bool operator==(const Config&) const = default;
};

}  // namespace spillway::app
