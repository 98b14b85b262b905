#include <spillway/app/config/config_keys.hpp>

#include <array>

namespace spillway::app {
namespace {

// DeepSpeed 0.19's keys beside those that have an effect. A key whose effect is built leaves this list.
using Kind = InertKind;
using Notice = InertNotice;

constexpr std::array kInertKeys = {
    // The mean over ranks is the same wherever it is divided.
    InertKey{"prescale_gradients", Kind::kBoolean, Notice::kNever, "false"},
    InertKey{"gradient_predivide_factor", Kind::kNumber, Notice::kNever, "1.0"},
    InertKey{"communication_data_type", Kind::kText, Notice::kAlways},
    InertKey{"data_types", Kind::kBlock, Notice::kNever},
    InertKey{"data_types.grad_accum_dtype", Kind::kText, Notice::kUnlessDefault, "\"fp32\""},
    InertKey{"zero_allow_untested_optimizer", Kind::kBoolean, Notice::kNever, "false"},  // Any optimizer is allowed.
    InertKey{"managed_gradient_accumulation", Kind::kBoolean, Notice::kNever, "true"},
    // Inputs are always cast, and gradients always go where they belong as they come.
    InertKey{"fp16.auto_cast", Kind::kBoolean, Notice::kNever, "false"},
    InertKey{"bf16.immediate_grad_update", Kind::kBoolean, Notice::kNever, "false"},
    InertKey{"fp16.fp16_master_weights_and_grads", Kind::kBoolean, Notice::kUnlessDefault, "false"},
    InertKey{"bf16.bf16_master_weights_and_grads", Kind::kBoolean, Notice::kUnlessDefault, "false"},
    InertKey{"torch_autocast.lower_precision_safe_modules", Kind::kTexts, Notice::kAlways},

    // What another type of optimizer has. LibTorch's update and the fused kernels' correct the bias: check_unbuilt()
    // refuses the other way.
    InertKey{"optimizer.params.torch_adam", Kind::kBoolean, Notice::kNever, "false"},
    InertKey{"optimizer.params.bias_correction", Kind::kBoolean, Notice::kNever, "true"},
    InertKey{"optimizer.params.adam_w_mode", Kind::kBoolean, Notice::kUnlessDefault, "true"},
    InertKey{"optimizer.params.amsgrad", Kind::kBoolean, Notice::kUnlessDefault, "false"},
    InertKey{"optimizer.params.betas", Kind::kNumbers, Notice::kAlways},
    InertKey{"optimizer.params.eps", Kind::kNumber, Notice::kAlways},
    InertKey{"optimizer.params.momentum", Kind::kNumber, Notice::kUnlessDefault, "0.0"},
    InertKey{"optimizer.params.dampening", Kind::kNumber, Notice::kUnlessDefault, "0.0"},
    InertKey{"optimizer.params.nesterov", Kind::kBoolean, Notice::kUnlessDefault, "false"},
    InertKey{"optimizer.params.lr_decay", Kind::kNumber, Notice::kUnlessDefault, "0.0"},
    InertKey{"optimizer.params.initial_accumulator_value", Kind::kNumber, Notice::kUnlessDefault, "0.0"},
    InertKey{"optimizer.params.alpha", Kind::kNumber, Notice::kAlways},
    InertKey{"optimizer.params.centered", Kind::kBoolean, Notice::kUnlessDefault, "false"},

    // What another type of scheduler has.
    InertKey{"scheduler.params.total_num_steps", Kind::kInteger, Notice::kAlways},
    InertKey{"scheduler.params.warmup_num_steps", Kind::kInteger, Notice::kAlways},
    InertKey{"scheduler.params.warmup_type", Kind::kText, Notice::kAlways},
    InertKey{"scheduler.params.warmup_min_lr", Kind::kNumber, Notice::kAlways},
    InertKey{"scheduler.params.warmup_max_lr", Kind::kNumber, Notice::kAlways},
    InertKey{"scheduler.params.warmup_min_ratio", Kind::kNumber, Notice::kAlways},
    InertKey{"scheduler.params.cos_min_ratio", Kind::kNumber, Notice::kAlways},
    InertKey{"scheduler.params.cycle_min_lr", Kind::kNumber, Notice::kAlways},
    InertKey{"scheduler.params.cycle_max_lr", Kind::kNumber, Notice::kAlways},
    InertKey{"scheduler.params.cycle_first_step_size", Kind::kInteger, Notice::kAlways},
    InertKey{"scheduler.params.cycle_second_step_size", Kind::kInteger, Notice::kAlways},
    InertKey{"scheduler.params.cycle_first_stair_count", Kind::kInteger, Notice::kAlways},
    InertKey{"scheduler.params.cycle_second_stair_count", Kind::kInteger, Notice::kAlways},
    InertKey{"scheduler.params.decay_step_size", Kind::kInteger, Notice::kAlways},
    InertKey{"scheduler.params.decay_lr_rate", Kind::kNumber, Notice::kAlways},
    InertKey{"scheduler.params.cycle_momentum", Kind::kBoolean, Notice::kAlways},
    InertKey{"scheduler.params.cycle_min_mom", Kind::kNumber, Notice::kAlways},
    InertKey{"scheduler.params.cycle_max_mom", Kind::kNumber, Notice::kAlways},
    InertKey{"scheduler.params.decay_mom_rate", Kind::kNumber, Notice::kAlways},

    InertKey{"zero_optimization.allgather_bucket_size", Kind::kInteger, Notice::kNever, "5e8"},
    InertKey{"zero_optimization.overlap_comm", Kind::kBoolean, Notice::kNever, "false"},
    InertKey{"zero_optimization.reduce_scatter", Kind::kBoolean, Notice::kNever, "true"},
    InertKey{"zero_optimization.contiguous_gradients", Kind::kBoolean, Notice::kNever, "true"},
    InertKey{"zero_optimization.allgather_partitions", Kind::kBoolean, Notice::kNever, "true"},
    InertKey{"zero_optimization.round_robin_gradients", Kind::kBoolean, Notice::kNever, "false"},
    InertKey{"zero_optimization.ignore_unused_parameters", Kind::kBoolean, Notice::kNever, "true"},
    InertKey{"zero_optimization.elastic_checkpoint", Kind::kBoolean, Notice::kNever, "false"},
    InertKey{"zero_optimization.load_from_fp32_weights", Kind::kBoolean, Notice::kNever, "true"},
    InertKey{"zero_optimization.zero_hpz_partition_size", Kind::kInteger, Notice::kUnlessDefault, "1"},
    InertKey{"zero_optimization.zero_quantized_weights", Kind::kBoolean, Notice::kUnlessDefault, "false"},
    InertKey{"zero_optimization.zero_quantized_gradients", Kind::kBoolean, Notice::kUnlessDefault, "false"},
    InertKey{"zero_optimization.zero_quantized_nontrainable_weights", Kind::kBoolean, Notice::kUnlessDefault, "false"},
    // Reads and writes always overlap with the update, and nothing is written before the first one.
    InertKey{"zero_optimization.offload_optimizer.pipeline_read", Kind::kBoolean, Notice::kNever, "false"},
    InertKey{"zero_optimization.offload_optimizer.pipeline_write", Kind::kBoolean, Notice::kNever, "false"},
    InertKey{"zero_optimization.offload_optimizer.fast_init", Kind::kBoolean, Notice::kNever, "false"},
    InertKey{"zero_optimization.offload_optimizer.super_offload", Kind::kBoolean, Notice::kUnlessDefault, "false"},
    InertKey{"zero_optimization.offload_optimizer.cpuadam_cores_perc", Kind::kNumber, Notice::kUnlessDefault, "0.8"},

    InertKey{"zero_optimization.offload_param", Kind::kBlock, Notice::kNever},
    InertKey{"zero_optimization.offload_param.device", Kind::kText, Notice::kOfStageThree, "\"none\""},
    InertKey{"zero_optimization.offload_param.nvme_path", Kind::kText, Notice::kOfStageThree},
    InertKey{"zero_optimization.offload_param.buffer_count", Kind::kInteger, Notice::kOfStageThree, "5"},
    InertKey{"zero_optimization.offload_param.buffer_size", Kind::kInteger, Notice::kOfStageThree, "1e8"},
    InertKey{"zero_optimization.offload_param.max_in_cpu", Kind::kInteger, Notice::kOfStageThree, "1e9"},
    InertKey{"zero_optimization.offload_param.pin_memory", Kind::kBoolean, Notice::kOfStageThree, "true"},
    InertKey{"zero_optimization.cpu_offload_params", Kind::kBoolean, Notice::kOfStageThree, "false"},
    InertKey{"zero_optimization.stage3_prefetch_bucket_size", Kind::kInteger, Notice::kOfStageThree, "5e7"},
    InertKey{"zero_optimization.stage3_param_persistence_threshold", Kind::kInteger, Notice::kOfStageThree, "1e5"},
    InertKey{"zero_optimization.stage3_max_live_parameters", Kind::kInteger, Notice::kOfStageThree, "1e9"},
    InertKey{"zero_optimization.stage3_max_reuse_distance", Kind::kInteger, Notice::kOfStageThree, "1e9"},
    InertKey{"zero_optimization.stage3_gather_16bit_weights_on_model_save", Kind::kBoolean, Notice::kOfStageThree,
             "false"},
    InertKey{"zero_optimization.stage3_gather_fp16_weights_on_model_save", Kind::kBoolean, Notice::kOfStageThree,
             "false"},

    InertKey{"aio.single_submit", Kind::kBoolean, Notice::kNever, "false"},
    InertKey{"aio.overlap_events", Kind::kBoolean, Notice::kNever, "true"},
    InertKey{"aio.use_gds", Kind::kBoolean, Notice::kUnlessDefault, "false"},

    InertKey{"activation_checkpointing", Kind::kBlock, Notice::kNever},
    InertKey{"activation_checkpointing.partition_activations", Kind::kBoolean, Notice::kUnlessDefault, "false"},
    InertKey{"activation_checkpointing.cpu_checkpointing", Kind::kBoolean, Notice::kUnlessDefault, "false"},
    InertKey{"activation_checkpointing.number_checkpoints", Kind::kInteger, Notice::kAlways},
    InertKey{"activation_checkpointing.contiguous_memory_optimization", Kind::kBoolean, Notice::kUnlessDefault,
             "false"},
    InertKey{"activation_checkpointing.synchronize_checkpoint_boundary", Kind::kBoolean, Notice::kUnlessDefault,
             "false"},
    InertKey{"activation_checkpointing.profile", Kind::kBoolean, Notice::kUnlessDefault, "false"},
    InertKey{"tensorboard", Kind::kBlock, Notice::kNever},
    InertKey{"tensorboard.enabled", Kind::kBoolean, Notice::kUnlessDefault, "false"},
    InertKey{"tensorboard.output_path", Kind::kText, Notice::kNever, "\"\""},
    InertKey{"tensorboard.job_name", Kind::kText, Notice::kNever, "\"DeepSpeedJobName\""},
    InertKey{"csv_monitor", Kind::kBlock, Notice::kNever},
    InertKey{"csv_monitor.enabled", Kind::kBoolean, Notice::kUnlessDefault, "false"},
    InertKey{"csv_monitor.output_path", Kind::kText, Notice::kNever, "\"\""},
    InertKey{"csv_monitor.job_name", Kind::kText, Notice::kNever, "\"DeepSpeedJobName\""},
    InertKey{"checkpoint.tag_validation", Kind::kText, Notice::kNever, "\"Warn\""},
    InertKey{"checkpoint.load_universal", Kind::kBoolean, Notice::kNever, "false"},
    InertKey{"checkpoint.use_node_local_storage", Kind::kBoolean, Notice::kNever, "false"},
    InertKey{"checkpoint.parallel_write", Kind::kBlock, Notice::kNever},

    InertKey{"wandb"},
    InertKey{"comet"},
    InertKey{"flops_profiler"},
    InertKey{"comms_logger"},
    InertKey{"autotuning"},
    InertKey{"elasticity"},
    InertKey{"sparse_attention"},
    InertKey{"compression_training"},
    InertKey{"curriculum_learning"},
    InertKey{"data_efficiency"},
    InertKey{"hybrid_engine"},
    InertKey{"compile"},
};

}  // namespace

std::span<const InertKey> inert_keys() noexcept { return kInertKeys; }

}  // namespace spillway::app
