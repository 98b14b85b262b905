#include <spillway/distributed/launch.hpp>

#include <charconv>
#include <cstdlib>
#include <limits>
#include <string_view>

#include <spillway/offload/error.hpp>

namespace spillway::distributed {
namespace {

constexpr int kPortMax = std::numeric_limits<std::uint16_t>::max();
// Ports made from a job's number lie above the well-known services and below Linux's ephemeral range.
constexpr int kSlurmPortFirst = 15000;
constexpr int kSlurmPortCount = 15000;

struct Range {
  int first;
  int last;
};

int parse(const std::string& name, const std::string& text, Range range, std::string_view advice) {
  int value = 0;
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc{} || stop != end || value < range.first || value > range.last) {
    throw ConfigError("environment variable " + name + " holds '" + text + "', wanted a whole number from " +
                      std::to_string(range.first) + " to " + std::to_string(range.last) + "; " + std::string(advice));
  }
  return value;
}

int require(const EnvironmentLookup& lookup, const std::string& name, const std::string& because, Range range,
            std::string_view advice) {
  const auto text = lookup(name);
  if (!text) {
    throw ConfigError("environment variable " + name + " is not set although " + because + " is; " +
                      std::string(advice));
  }
  return parse(name, *text, range, advice);
}

int read_or(const EnvironmentLookup& lookup, const std::string& name, int otherwise, Range range,
            std::string_view advice) {
  const auto text = lookup(name);
  return text ? parse(name, *text, range, advice) : otherwise;
}

struct VariableNames {
  std::string rank;
  std::string world_size;
  std::string local_rank;
  std::string advice;
};

RankEnvironment read_numbers(const EnvironmentLookup& lookup, const VariableNames& names) {
  constexpr int kMax = std::numeric_limits<int>::max();
  RankEnvironment result;
  result.world_size = require(lookup, names.world_size, names.rank, {1, kMax}, names.advice);
  result.rank = require(lookup, names.rank, names.world_size, {0, result.world_size - 1}, names.advice);
  result.local_rank = require(lookup, names.local_rank, names.rank, {0, result.world_size - 1}, names.advice);
  return result;
}

/// The first host of a list such as "gpu[03-07,12],login1": "gpu03".
std::string first_host(const std::string& variable, const std::string& list) {
  const auto bracket = list.find_first_of("[,");
  std::string host = list.substr(0, bracket);
  if (bracket != std::string::npos && list[bracket] == '[') {
    const auto number = bracket + 1;
    const auto number_end = list.find_first_of("-,]", number);
    const auto close = list.find(']', number);
    if (number_end == std::string::npos || number_end == number || close == std::string::npos) {
      throw ConfigError("environment variable " + variable + " holds '" + list +
                        "', which is no list of hosts; set MASTER_ADDR to the host of rank 0");
    }
    host += list.substr(number, number_end - number);
    const auto suffix_end = list.find(',', close);
    host += list.substr(close + 1, suffix_end == std::string::npos ? suffix_end : suffix_end - close - 1);
  }
  if (host.empty()) {
    throw ConfigError("environment variable " + variable + " names no host; set MASTER_ADDR to the host of rank 0");
  }
  return host;
}

std::string read_master_addr(const EnvironmentLookup& lookup, bool slurm) {
  if (const auto address = lookup("MASTER_ADDR"); address && !address->empty()) {
    return *address;
  }
  if (slurm) {
    for (const std::string variable : {"SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST"}) {
      if (const auto list = lookup(variable)) {
        return first_host(variable, *list);
      }
    }
  }
  throw ConfigError(
      "environment variable MASTER_ADDR is not set although there are several ranks; "
      "set it to the host of rank 0, or start the ranks with torchrun");
}

std::uint16_t read_master_port(const EnvironmentLookup& lookup, bool slurm) {
  constexpr std::string_view kAdvice = "set it to a free TCP port of MASTER_ADDR's host, the same for all ranks";
  if (slurm && !lookup("MASTER_PORT")) {
    const int job = require(lookup, "SLURM_JOB_ID", "SLURM_PROCID", {0, std::numeric_limits<int>::max()},
                            "set MASTER_PORT to a free TCP port, the same for all ranks");
    return static_cast<std::uint16_t>(kSlurmPortFirst + job % kSlurmPortCount);
  }
  return static_cast<std::uint16_t>(require(lookup, "MASTER_PORT", "MASTER_ADDR", {1, kPortMax}, kAdvice));
}

}  // namespace

RankEnvironment read_rank_environment(const EnvironmentLookup& lookup) {
  const bool torchrun = lookup("RANK") || lookup("WORLD_SIZE");
  const bool slurm = !torchrun && lookup("SLURM_STEP_NUM_TASKS");
  if (!torchrun && !slurm) {
    return {};
  }
  RankEnvironment result =
      torchrun ? read_numbers(lookup, {"RANK", "WORLD_SIZE", "LOCAL_RANK",
                                       "start the ranks with torchrun --no-python, which sets RANK, WORLD_SIZE and "
                                       "LOCAL_RANK, or unset all three for a single process"})
               : read_numbers(lookup, {"SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID",
                                       "start the ranks with srun, which sets it"});
  if (result.world_size == 1) {
    return result;
  }
  result.master_addr = read_master_addr(lookup, slurm);
  result.master_port = read_master_port(lookup, slurm);
  result.launcher_hosts_store = lookup("TORCHELASTIC_USE_AGENT_STORE") == "True";
  result.attempt = read_or(lookup, "TORCHELASTIC_RESTART_COUNT", 0, {0, std::numeric_limits<int>::max()},
                           "torchrun sets it; unset it otherwise");
  return result;
}

RankEnvironment read_rank_environment() {
  return read_rank_environment([](const std::string& name) -> std::optional<std::string> {
    const char* const value = std::getenv(name.c_str());
    return value != nullptr ? std::optional<std::string>(value) : std::nullopt;
  });
}

}  // namespace spillway::distributed
