#include <spillway/app/cli/command_line.hpp>

#include <algorithm>
#include <charconv>
#include <sstream>
#include <string_view>

#include <CLI/CLI.hpp>

#include <spillway/app/cli/byte_size.hpp>
#include <spillway/app/config/config_keys.hpp>
#include <spillway/offload/error.hpp>

namespace spillway::app {
namespace {

[[noreturn]] void refuse(const std::string& what, std::string_view instead) {
  throw ConfigError(what + ": not in this version; " + std::string(instead));
}

/// A check for CLI11, which itself takes -1 for the largest number there is.
auto whole_number_from(std::uint64_t least) {
  return [least](const std::string& text) {
    std::uint64_t value = 0;
    const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), value);
    const bool good = failure == std::errc() && end == text.data() + text.size() && value >= least;
    return good ? std::string() : "'" + text + "' is no whole number from " + std::to_string(least) + " up";
  };
}

/// What says which run it is.
void add_run_options(CLI::App* train, TrainFlags& flags) {
  const auto offload_names = CLI::IsMember({"none", "cpu", "nvme"});
  train->add_option("--config", flags.config, "Configuration file (JSON, DeepSpeed's names)");
  train->add_option("--set", flags.set, "key.sub=value: sets one key of the configuration; may be repeated")
      ->take_all()
      ->allow_extra_args(false);
  const auto methods = method_names();
  train->add_option("--method", flags.method, "moco, simclr, supcon, byol or simsiam")
      ->check(CLI::IsMember(std::vector<std::string>(methods.begin(), methods.end())));
  train->add_option("--data", flags.data,
                    "mnist5k, digits, synthetic, or a path: CSV or IDX file, folder of images, IDX or CIFAR");
  train->add_option("--encoder", flags.encoder, "small_cnn, mlp, resnet18, resnet34 or resnet50");
  CLI::Option* epochs =
      train->add_option("--epochs", flags.epochs, "Passes over the images")->check(whole_number_from(1));
  train->add_option("--steps", flags.steps, "Optimizer steps, instead of epochs")
      ->check(whole_number_from(1))
      ->excludes(epochs);
  train->add_option("--eval-every", flags.eval_every, "Epochs from one measurement of accuracies to the next; 0: none")
      ->check(whole_number_from(0));
  train->add_option("--out", flags.out, "Folder for the run's files (runs/<name>)");
  train->add_option("--seed", flags.seed, "Seed of weights, order and augmentation")->check(whole_number_from(0));
  train->add_flag("--deterministic", flags.deterministic, "Fix every choice that a measurement would make");
  train->add_flag("--strict", flags.strict, "Unknown keys in DeepSpeed's blocks are errors");
  train->add_option("--offload-optimizer", flags.offload_optimizer, "Home of the optimizer state")
      ->check(offload_names);
  train->add_option("--offload-gradients", flags.offload_gradients, "Home of the sums of gradients")
      ->check(offload_names);
  train->add_option("--offload-bank", flags.offload_bank, "Home of the bank's cold segments")->check(offload_names);
  train->add_option("--nvme-path", flags.nvme_path,
                    "Folders on the disks that are swapped to, parted by commas (the run's folder)");
  train->add_option_function<std::string>(
      "--host-budget",
      [&flags](const std::string& text) { flags.host_budget_bytes = parse_byte_size(text, "--host-budget"); },
      "Host memory that Spillway may use: 64MiB, 2e9, …");
  train
      ->add_option_function<std::uint64_t>(
          "--nproc",
          [](std::uint64_t ranks) {
            if (ranks != 1)
              refuse("--nproc " + std::to_string(ranks), "a launcher starts ranks: torchrun --no-python, srun");
          },
          "Local ranks: 1; more are started by a launcher")
      ->check(whole_number_from(1));
}

void add_train(CLI::App& app, TrainFlags& flags) {
  CLI::App* train = app.add_subcommand("train", "Train an encoder; everything has a default");
  add_run_options(train, flags);
  train->add_option("--trace", flags.trace, "Write what happened when to this file, for ui.perfetto.dev");
  train->add_flag("--no-progress", flags.no_progress, "Plain lines instead of a progress bar");
  train->add_option("--resume", flags.resume,
                    "Go on from a checkpoint, or from the newest in a run's folder; auto: in --out, if there is one");
  CLI::Option* init = train->add_option(
      "--init", flags.init, "Start from the weights of a checkpoint, or of the newest in a run's folder, at step 0");
  train->add_option("--init-part", flags.init_part, "weights, or encoder alone, for another head or method")
      ->check(CLI::IsMember({"weights", "encoder"}))
      ->needs(init);
}

void add_plan(CLI::App& app, PlanFlags& flags) {
  CLI::App* plan = app.add_subcommand("plan", "What a run would place where, move in each step, and take");
  add_run_options(plan, flags.train);
  plan->add_flag("--json", flags.json, "As JSON");
}

void add_probe(CLI::App& app, ProbeFlags& flags) {
  CLI::App* probe = app.add_subcommand("probe", "What this machine has, and how fast each link is");
  probe->add_option("--nvme-path", flags.nvme_paths, "Folders on the disks to measure (the current one)")
      ->delimiter(',');
  probe->add_flag("--json", flags.json, "As JSON");
}

void add_eval(CLI::App& app, EvalFlags& flags) {
  CLI::App* eval = app.add_subcommand("eval", "How well a checkpoint's encoder tells classes apart");
  eval->add_option("checkpoint", flags.checkpoint, "Folder of a checkpoint, or of a run")->required();
  eval->add_option("--data", flags.data, "Other images than the run's, named as for train");
  eval->add_option("--probe", flags.probe, "knn, linear or few_label (all of them)")
      ->check(CLI::IsMember({"knn", "linear", "few_label"}));
  eval->add_flag("--json", flags.json, "As JSON");
}

struct CheckpointFlags {
  InspectFlags inspect;
  VerifyFlags verify;
  ExportFlags export_;
};

void add_checkpoint_commands(CLI::App& app, CheckpointFlags& flags) {
  const auto add = [&](const char* name, const char* what, std::string& checkpoint, const char* which) {
    CLI::App* command = app.add_subcommand(name, what);
    command->add_option("checkpoint", checkpoint, which)->required();
    return command;
  };
  CLI::App* inspect = add("inspect", "What is in a checkpoint", flags.inspect.checkpoint,
                          "Folder of a checkpoint, or of a run: its newest");
  inspect->add_flag("--tensors", flags.inspect.tensors, "List every tensor");
  inspect->add_flag("--json", flags.inspect.json, "As JSON");
  add("verify", "Read a checkpoint and say whether it is as it was written", flags.verify.checkpoint,
      "Folder of a checkpoint, or of a run: all of its checkpoints");
  CLI::App* out = add("export", "Write the weights of a checkpoint's encoder and head into a file",
                      flags.export_.checkpoint, "Folder of a checkpoint, or of a run: its newest whole one");
  out->add_option("--format", flags.export_.format, "safetensors, or torch: a dictionary for torch.load")
      ->check(CLI::IsMember({"safetensors", "torch"}))
      ->required();
  out->add_option("--out", flags.export_.out, "The file, which must not exist yet")->required();
}

/// A benchmark with what all of them can be told. @param rows  Some that there are.
template <typename Options>
CLI::App* add_benchmark(CLI::App& bench, const char* name, const char* what, Options& options, const char* rows) {
  CLI::App* one = bench.add_subcommand(name, what);
  one->add_option("--json", options.json, "Write the results to this file");
  one->add_option("--rounds", options.rounds, "Rounds of each row (11)")->check(whole_number_from(1));
  one->add_option("--rows", options.rows, std::string("Measure these rows alone: ") + rows)->delimiter(',');
  one->add_option_function<std::string>(
      "--report", [](const std::string&) { refuse("--report", "--json writes the results"); }, "not in this version");
  return one;
}

void add_peers(CLI::App& bench, std::string& folder) {
  bench.add_option("--peers", folder, "Folder that `scripts/bootstrap peers` filled");
}

void add_bytes(CLI::App& bench, std::uint64_t& bytes, const char* what) {
  bench.add_option_function<std::string>(
      "--bytes", [&bytes](const std::string& text) { bytes = parse_byte_size(text, "--bytes"); }, what);
}

void add_bench_io(CLI::App& bench, BenchIoOptions& options) {
  CLI::App* io = add_benchmark(bench, "io", "Reads and overwrites of the storage engine beside what the disk can do",
                               options, "read,overwrite,…");
  io->add_option("--nvme-path", options.nvme_path, "Folder on the disk that is measured (the current one)");
  add_bytes(*io, options.bytes, "Moved in each measurement (2GiB); the disk needs three times that");
  add_peers(*io, options.peers_folder);
}

void add_bench_optimizer(CLI::App& bench, BenchOptimizerOptions& options) {
  CLI::App* optimizer =
      add_benchmark(bench, "optimizer", "AdamW steps beside the machine's bound, LibTorch's fused one and DeepSpeed's",
                    options, "fp32_flat,all_bf16,…");
  optimizer->add_option("--numel", options.numel, "Elements of the flat rows (134217728); the others have an eighth");
  add_peers(*optimizer, options.peers_folder);
}

void add_bench_bank(CLI::App& bench, BenchBankOptions& options) {
  CLI::App* bank = add_benchmark(bench, "bank", "The loss over a bank beside LibTorch's usual way, and from disk",
                                 options, "memory_128,disk_8,…");
  bank->add_option("--nvme-path", options.nvme_path,
                   "Folder on the disk that a bank is streamed from (the current one)");
  bank->add_option("--capacity", options.capacity, "Keys of the banks in memory (65536)");
  add_bytes(*bank, options.bytes,
            "Size of the bank on disk (2GiB), of which an eighth is its host budget; the disk needs twice that");
}

void add_bench_step(CLI::App& bench, BenchStepOptions& options) {
  CLI::App* step = add_benchmark(bench, "step", "AdamW steps with the state on the disk beside what each half needs",
                                 options, "step_fp32,step_8bit_peer,…");
  step->add_option("--nvme-path", options.nvme_path, "Folder on the disk that the state is on (the current one)");
  step->add_option("--numel", options.numel, "Elements of the parameters (209715200)");
  add_peers(*step, options.peers_folder);
}

void add_bench_data(CLI::App& bench, BenchDataOptions& options) {
  CLI::App* data = add_benchmark(bench, "data", "Images read, decoded and augmented beside torchvision's DataLoader",
                                 options, "simclr_224");
  data->add_option("--data", options.data, "Folder of classes with image files (files that are made for it)");
  data->add_option("--images", options.images, "Files that are made (512)")->check(whole_number_from(1));
  data->add_option("--workers", options.workers, "Threads, and processes of the DataLoader (2)")
      ->check(whole_number_from(1));
  add_peers(*data, options.peers_folder);
}

void add_bench_checkpoint(CLI::App& bench, BenchCheckpointOptions& options) {
  CLI::App* checkpoint = add_benchmark(bench, "checkpoint", "Checkpoints saved and loaded beside what the disk can do",
                                       options, "save,load");
  checkpoint->add_option("--path", options.path, "Folder on the disk that is measured (the current one)");
  add_bytes(*checkpoint, options.bytes, "Size of the checkpoint (1GiB); the disk needs three times that");
}

struct BenchOptions {
  BenchIoOptions io;
  BenchOptimizerOptions optimizer;
  BenchBankOptions bank;
  BenchCheckpointOptions checkpoint;
  BenchStepOptions step;
  BenchDataOptions data;
};

void add_bench(CLI::App& app, BenchOptions& all) {
  CLI::App* bench = app.add_subcommand("bench", "Measure this machine, and Spillway on it");
  add_bench_io(*bench, all.io);
  add_bench_optimizer(*bench, all.optimizer);
  add_bench_bank(*bench, all.bank);
  add_bench_checkpoint(*bench, all.checkpoint);
  add_bench_step(*bench, all.step);
  add_bench_data(*bench, all.data);
}

/// CLI11's own words, on one line, with where to read on.
[[noreturn]] void rethrow_as_config_error(const CLI::App& app, const CLI::ParseError& error) {
  std::string command = "spillway";
  for (const CLI::App* at = &app; !at->get_subcommands().empty();) {
    at = at->get_subcommands().front();
    command += " " + at->get_name();
  }
  std::string text = error.what();
  std::replace(text.begin(), text.end(), '\n', ' ');
  throw ConfigError(command + ": " + text + "; see `" + command + " --help`");
}

}  // namespace

Command parse_command_line(const std::vector<std::string>& arguments) {
  CLI::App app("Spillway: an offloading memory manager for contrastive training on LibTorch", "spillway");
  app.set_version_flag("--version", "spillway " SPILLWAY_VERSION);
  TrainFlags train;
  BenchOptions benches;
  ProbeFlags probe;
  PlanFlags plan;
  EvalFlags eval;
  add_train(app, train);
  add_plan(app, plan);
  add_probe(app, probe);
  add_eval(app, eval);
  CheckpointFlags checkpoints;
  add_checkpoint_commands(app, checkpoints);
  add_bench(app, benches);

  std::vector<std::string> reversed(arguments.rbegin(), arguments.rend());  // As CLI11 wants them.
  try {
    app.parse(reversed);
  } catch (const CLI::CallForHelp&) {
    return Information{app.help()};
  } catch (const CLI::CallForVersion& version) {
    return Information{std::string(version.what()) + "\n"};
  } catch (const CLI::ParseError& error) {
    rethrow_as_config_error(app, error);
  }
  if (app.got_subcommand("train")) return train;
  if (app.got_subcommand("plan")) return plan;
  if (app.got_subcommand("probe")) return probe;
  if (app.got_subcommand("eval")) return eval;
  if (app.got_subcommand("inspect")) return checkpoints.inspect;
  if (app.got_subcommand("verify")) return checkpoints.verify;
  if (app.got_subcommand("export")) return checkpoints.export_;
  if (!app.got_subcommand("bench")) throw ConfigError("spillway: which command? `spillway --help` lists them");
  const CLI::App* const bench = app.get_subcommand("bench");
  if (bench->got_subcommand("io")) return benches.io;
  if (bench->got_subcommand("optimizer")) return benches.optimizer;
  if (bench->got_subcommand("bank")) return benches.bank;
  if (bench->got_subcommand("checkpoint")) return benches.checkpoint;
  if (bench->got_subcommand("step")) return benches.step;
  if (bench->got_subcommand("data")) return benches.data;
  throw ConfigError("spillway bench: which bench? `spillway bench --help` lists them");
}

}  // namespace spillway::app
