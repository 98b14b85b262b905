#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include <spillway/app/bench/bench_bank.hpp>
#include <spillway/app/bench/bench_checkpoint.hpp>
#include <spillway/app/bench/bench_data.hpp>
#include <spillway/app/bench/bench_io.hpp>
#include <spillway/app/bench/bench_optimizer.hpp>
#include <spillway/app/bench/bench_step.hpp>

namespace spillway::app {

/// The flags of `spillway train`, as given: what is absent is decided by the configuration file or its defaults.
struct TrainFlags {
  std::optional<std::string> config;  ///< --config: a file.
  std::vector<std::string> set;       ///< --set key.sub=value, in order.
  std::optional<std::string> method;
  std::optional<std::string> data;
  std::optional<std::string> encoder;
  std::optional<std::uint64_t> epochs;
  std::optional<std::uint64_t> steps;
  std::optional<std::uint64_t> eval_every;
  std::optional<std::string> out;
  std::optional<std::uint64_t> seed;
  std::optional<std::string> offload_optimizer;
  std::optional<std::string> offload_gradients;
  std::optional<std::string> offload_bank;
  std::optional<std::string> nvme_path;
  std::optional<std::uint64_t> host_budget_bytes;
  bool deterministic = false;
  bool strict = false;
  bool no_progress = false;
  std::optional<std::string> trace = {};   ///< --trace: a file.
  std::optional<std::string> resume = {};  ///< --resume: a folder, or auto.
  std::optional<std::string> init = {};    ///< --init: a folder.
  std::string init_part = "weights";       ///< --init-part: weights or encoder.
};

/// The flags of `spillway probe`.
struct ProbeFlags {
  std::vector<std::string> nvme_paths = {"."};
  bool json = false;
};

/// The flags of `spillway plan`: those of a run, which they describe.
struct PlanFlags {
  TrainFlags train;
  bool json = false;
};

/// The flags of `spillway eval`.
struct EvalFlags {
  std::string checkpoint;            ///< A checkpoint's folder, or a run's: its newest whole one.
  std::optional<std::string> data;   ///< --data; the run's where not given.
  std::optional<std::string> probe;  ///< knn, linear or few_label; all of them where not given.
  bool json = false;
};

/// The flags of `spillway inspect`.
struct InspectFlags {
  std::string checkpoint;  ///< A checkpoint's folder, or a run's: its newest one.
  bool tensors = false;    ///< Each of them, not only how many.
  bool json = false;
};

/// The flags of `spillway verify`.
struct VerifyFlags {
  std::string checkpoint;  ///< A checkpoint's folder, or a run's: all of its checkpoints.
};

/// The flags of `spillway export`.
struct ExportFlags {
  std::string checkpoint;  ///< A checkpoint's folder, or a run's: its newest whole one.
  std::string format;      ///< safetensors or torch.
  std::string out;         ///< A file that does not exist yet.
};

/// A text that was asked for: --help or --version.
struct Information {
  std::string text;
};

using Command = std::variant<Information, TrainFlags, BenchIoOptions, BenchOptimizerOptions, BenchBankOptions,
                             BenchStepOptions, BenchDataOptions, BenchCheckpointOptions, ProbeFlags, PlanFlags,
                             EvalFlags, InspectFlags, VerifyFlags, ExportFlags>;

/// Reads the command line, without the program's name.
/// @throws ConfigError with one line for whatever is not understood: an unknown or contradictory flag, a value of the
/// wrong type, or a command or flag that is known and not in this version (which says what to do instead).
[[nodiscard]] Command parse_command_line(const std::vector<std::string>& arguments);

}  // namespace spillway::app
