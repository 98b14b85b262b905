#include <spillway/app/config/config_keys.hpp>

#include <array>

namespace spillway::app {
namespace {

// DeepSpeed 0.19's keys beside those of config_keys.cpp. A key whose effect is built moves from here to there.
constexpr std::array kInertKeys = {
    // The mean over ranks is the same wherever it is divided.
    InertKey{"prescale_gradients", "*"},
    InertKey{"gradient_predivide_factor", "*"},
    InertKey{"communication_data_type", ""},
    InertKey{"data_types", ""},
    InertKey{"data_types.grad_accum_dtype", "\"fp32\""},
    InertKey{"dump_state", "false"},
    InertKey{"memory_breakdown", "false"},
    InertKey{"wall_clock_breakdown", "false"},
    InertKey{"zero_allow_untested_optimizer", "*"},  // Any optimizer is allowed.
    InertKey{"managed_gradient_accumulation", "*"},

    // Switched on, these would change results: check_unbuilt() refuses them. Switched off, their keys don't matter.
    InertKey{"fp16", "*"},
    InertKey{"fp16.enabled", "*"},
    InertKey{"fp16.auto_cast", "*"},
    InertKey{"fp16.loss_scale", "*"},
    InertKey{"fp16.initial_scale_power", "*"},
    InertKey{"fp16.loss_scale_window", "*"},
    InertKey{"fp16.hysteresis", "*"},
    InertKey{"fp16.consecutive_hysteresis", "*"},
    InertKey{"fp16.min_loss_scale", "*"},
    InertKey{"fp16.fp16_master_weights_and_grads", "*"},
    InertKey{"bf16", "*"},
    InertKey{"bf16.enabled", "*"},
    InertKey{"bf16.immediate_grad_update", "*"},
    InertKey{"bf16.check_grad_overflow", "*"},
    InertKey{"bf16.bf16_master_weights_and_grads", "*"},
    InertKey{"bf16.bf16_optimizer_states", "*"},
    InertKey{"torch_autocast", "*"},
    InertKey{"torch_autocast.enabled", "*"},
    InertKey{"torch_autocast.dtype", "*"},
    InertKey{"torch_autocast.lower_precision_safe_modules", "*"},
    InertKey{"scheduler", "*"},
    InertKey{"scheduler.type", "*"},
    InertKey{"scheduler.params", "*"},

    // What another type of optimizer has; bias_correction: false is refused.
    InertKey{"optimizer.params.betas", ""},
    InertKey{"optimizer.params.eps", ""},
    InertKey{"optimizer.params.amsgrad", "false"},
    InertKey{"optimizer.params.torch_adam", "*"},  // The update is always LibTorch's own.
    InertKey{"optimizer.params.adam_w_mode", "true"},
    InertKey{"optimizer.params.bias_correction", "*"},
    InertKey{"optimizer.params.momentum", "0.0"},
    InertKey{"optimizer.params.dampening", "0.0"},
    InertKey{"optimizer.params.nesterov", "false"},

    InertKey{"zero_optimization.reduce_bucket_size", ""},
    InertKey{"zero_optimization.allgather_bucket_size", ""},
    InertKey{"zero_optimization.overlap_comm", "false"},
    InertKey{"zero_optimization.reduce_scatter", "*"},
    InertKey{"zero_optimization.contiguous_gradients", "*"},
    InertKey{"zero_optimization.allgather_partitions", "*"},
    InertKey{"zero_optimization.round_robin_gradients", "*"},
    InertKey{"zero_optimization.ignore_unused_parameters", "*"},
    InertKey{"zero_optimization.elastic_checkpoint", "*"},
    InertKey{"zero_optimization.load_from_fp32_weights", "*"},
    InertKey{"zero_optimization.zero_hpz_partition_size", "1"},
    InertKey{"zero_optimization.zero_quantized_weights", "false"},
    InertKey{"zero_optimization.zero_quantized_gradients", "false"},
    InertKey{"zero_optimization.zero_quantized_nontrainable_weights", "false"},
    InertKey{"zero_optimization.offload_optimizer.ratio", "1.0"},
    // Reads and writes always overlap with the update.
    InertKey{"zero_optimization.offload_optimizer.pipeline_read", "*"},
    InertKey{"zero_optimization.offload_optimizer.pipeline_write", "*"},
    InertKey{"zero_optimization.offload_optimizer.fast_init", "*"},
    InertKey{"zero_optimization.offload_optimizer.super_offload", "false"},
    InertKey{"zero_optimization.offload_optimizer.cpuadam_cores_perc", "0.8"},

    InertKey{"zero_optimization.offload_param", "*"},
    InertKey{"zero_optimization.offload_param.device", "\"none\"", true},
    InertKey{"zero_optimization.offload_param.nvme_path", "", true},
    InertKey{"zero_optimization.offload_param.buffer_count", "", true},
    InertKey{"zero_optimization.offload_param.buffer_size", "", true},
    InertKey{"zero_optimization.offload_param.max_in_cpu", "", true},
    InertKey{"zero_optimization.offload_param.pin_memory", "", true},
    InertKey{"zero_optimization.cpu_offload_params", "false", true},
    InertKey{"zero_optimization.stage3_prefetch_bucket_size", "", true},
    InertKey{"zero_optimization.stage3_param_persistence_threshold", "", true},
    InertKey{"zero_optimization.stage3_max_live_parameters", "", true},
    InertKey{"zero_optimization.stage3_max_reuse_distance", "", true},
    InertKey{"zero_optimization.stage3_gather_16bit_weights_on_model_save", "false", true},
    InertKey{"zero_optimization.stage3_gather_fp16_weights_on_model_save", "false", true},

    InertKey{"aio.intra_op_parallelism", "1"},
    InertKey{"aio.thread_count", "1"},
    InertKey{"aio.single_submit", "*"},
    InertKey{"aio.overlap_events", "*"},
    InertKey{"aio.use_gds", "false"},

    InertKey{"activation_checkpointing", ""},
    InertKey{"tensorboard", ""},
    InertKey{"csv_monitor", ""},
    InertKey{"wandb", ""},
    InertKey{"comet", ""},
    InertKey{"checkpoint", ""},
    InertKey{"flops_profiler", ""},
    InertKey{"comms_logger", ""},
    InertKey{"autotuning", ""},
    InertKey{"elasticity", ""},
    InertKey{"sparse_attention", ""},
    InertKey{"compression_training", ""},
    InertKey{"curriculum_learning", ""},
    InertKey{"data_efficiency", ""},
    InertKey{"hybrid_engine", ""},
    InertKey{"compile", ""},
};

}  // namespace

std::span<const InertKey> inert_keys() noexcept { return kInertKeys; }

}  // namespace spillway::app
