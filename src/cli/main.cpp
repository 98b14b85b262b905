// The program `spillway`: reads the command line, runs the command, turns what it throws into one line and a status.
#include <algorithm>
#include <cstdlib>
#include <exception>
#include <iostream>
#include <string>
#include <variant>

#include <c10/util/Exception.h>
#include <c10/util/Logging.h>

#include <spillway/app/bench/bench_bank.hpp>
#include <spillway/app/bench/bench_checkpoint.hpp>
#include <spillway/app/bench/bench_data.hpp>
#include <spillway/app/bench/bench_io.hpp>
#include <spillway/app/bench/bench_optimizer.hpp>
#include <spillway/app/bench/bench_step.hpp>
#include <spillway/app/cli/checkpoint_commands.hpp>
#include <spillway/app/cli/command_line.hpp>
#include <spillway/app/cli/eval_command.hpp>
#include <spillway/app/cli/plan_command.hpp>
#include <spillway/app/cli/probe_command.hpp>
#include <spillway/app/cli/train_command.hpp>
#include <spillway/distributed/launch.hpp>
#include <spillway/offload/error.hpp>

namespace {

constexpr int kStatusRefused = 1;  // By this machine or its data.
constexpr int kStatusUsage = 2;    // Knowable from the command line and the configuration.

int run(const std::vector<std::string>& arguments) {
  using namespace spillway::app;
  const Command command = parse_command_line(arguments);
  if (const auto* information = std::get_if<Information>(&command)) {
    std::cout << information->text;
    return 0;
  }
  if (const auto* flags = std::get_if<TrainFlags>(&command)) return run_train(*flags);
  if (const auto* flags = std::get_if<PlanFlags>(&command)) return run_plan(*flags);
  if (const auto* flags = std::get_if<ProbeFlags>(&command)) return run_probe(*flags);
  if (const auto* flags = std::get_if<EvalFlags>(&command)) return run_eval(*flags);
  if (const auto* flags = std::get_if<InspectFlags>(&command)) return run_inspect(*flags);
  if (const auto* flags = std::get_if<VerifyFlags>(&command)) return run_verify(*flags);
  if (const auto* flags = std::get_if<ExportFlags>(&command)) return run_export(*flags);
  if (const auto* bench = std::get_if<BenchOptimizerOptions>(&command)) return run_bench_optimizer(*bench);
  if (const auto* bench = std::get_if<BenchCheckpointOptions>(&command)) return run_bench_checkpoint(*bench);
  if (const auto* bench = std::get_if<BenchBankOptions>(&command)) return run_bench_bank(*bench);
  if (const auto* bench = std::get_if<BenchStepOptions>(&command)) return run_bench_step(*bench);
  if (const auto* bench = std::get_if<BenchDataOptions>(&command)) return run_bench_data(*bench);
  return run_bench_io(std::get<BenchIoOptions>(command));
}

/// "rank 1: " where there are several.
std::string rank_prefix() {
  try {
    const spillway::distributed::RankEnvironment environment = spillway::distributed::read_rank_environment();
    return environment.world_size == 1 ? "" : "rank " + std::to_string(environment.rank) + ": ";
  } catch (const spillway::ConfigError&) {
    return "";  // It is the reason.
  }
}

/// One line on standard error, whatever the reason looks like: tables in it are strung together.
int fail(int status, const std::string& reason) {
  std::cout.flush();
  std::string line = (reason.starts_with("spillway") ? "" : "spillway: ") + rank_prefix();
  for (const char c : reason) {
    if (c != '\n') {
      line += c;
    } else if (line.back() != ';') {
      line += ';';
    }
  }
  std::cerr << line << "\n";
  return status;
}

}  // namespace

int main(int argc, char** argv) {
  // What c10d logs of a connection that fails, stack frames and all, would drown the one line that says what to do.
  if (std::getenv("TORCH_CPP_LOG_LEVEL") == nullptr) FLAGS_caffe2_log_level = c10::GLOG_FATAL;
  try {
    return run({argv + 1, argv + argc});
  } catch (const spillway::ConfigError& error) {
    return fail(kStatusUsage, error.what());
  } catch (const c10::Error& error) {
    return fail(kStatusRefused, error.what_without_backtrace());
  } catch (const std::exception& error) {
    return fail(kStatusRefused, error.what());
  }
}
