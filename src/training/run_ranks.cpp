#include <spillway/app/training/run_ranks.hpp>

#include <chrono>
#include <cstring>

#include <ATen/ops/empty.h>
#include <ATen/ops/tensor.h>

#include <spillway/app/config/json.hpp>
#include <spillway/app/config/load_config.hpp>
#include <spillway/distributed/process_group.hpp>
#include <spillway/offload/error.hpp>

namespace spillway::app {
namespace {

distributed::GroupOptions group_options(const Config& config, const char* name) {
  const std::chrono::milliseconds timeout = std::chrono::seconds(config.ranks.timeout_s);
  return {.timeout = timeout, .rendezvous_timeout = timeout, .name = name};
}

/// "seed: 1 on rank 0, 2 on rank 1": the first key in which two resolved configurations differ.
std::optional<std::string> first_difference(const std::string& path, const Json& first, const Json& other,
                                            const std::string& rank) {
  if (first == other) return std::nullopt;
  const auto* const object = first.get_if<Json::Object>();
  if (object != nullptr && other.get_if<Json::Object>() != nullptr) {
    for (const auto& [key, value] : *object) {
      const Json* const theirs = other.find(key);
      const std::string inner = path.empty() ? key : path + "." + key;
      if (auto found = first_difference(inner, value, theirs == nullptr ? Json() : *theirs, rank)) return found;
    }
  }
  return path + ": " + first.dump() + " on rank 0, " + other.dump() + " on rank " + rank;
}

}  // namespace

RunRanks::RunRanks() : all_(distributed::connect({})) {}

RunRanks::RunRanks(const Config& config, const distributed::RankEnvironment& environment)
    : all_(distributed::connect(environment, group_options(config, "run"))) {
  if (alone()) return;
  compare(config);
  if (!config.shards(place().world_size)) return;
  gradients_ = distributed::connect(environment, group_options(config, "gradients"));
  agreement_ = distributed::connect(environment, group_options(config, "agreement"));
}

RankPlace RunRanks::place() const noexcept {
  return {static_cast<std::uint64_t>(all_->rank()), static_cast<std::uint64_t>(all_->world_size())};
}

void RunRanks::compare(const Config& config) {
  const std::vector<std::string> texts = exchange(to_json(config).dump());
  for (std::size_t rank = 1; rank < texts.size(); ++rank) {
    if (texts[rank] == texts.front()) continue;
    const std::string number = std::to_string(rank);
    const auto difference = first_difference("", parse_json(texts.front(), "configuration of rank 0"),
                                             parse_json(texts[rank], "configuration of rank " + number), number);
    throw ConfigError("the ranks have different configurations: " + difference.value_or("rank " + number) +
                      "; start all of them with the same file and flags");
  }
}

std::vector<std::string> RunRanks::exchange(const std::string& text) {
  at::Tensor mine = at::empty({static_cast<std::int64_t>(text.size())}, at::kByte);
  if (!text.empty()) std::memcpy(mine.mutable_data_ptr(), text.data(), text.size());
  std::vector<std::string> texts;
  for (const at::Tensor& theirs : all_->all_gather(mine)) {
    texts.emplace_back(static_cast<const char*>(theirs.const_data_ptr()), theirs.nbytes());
  }
  return texts;
}

std::optional<std::string> RunRanks::first_failure(const std::string& failure) {
  if (alone()) return failure.empty() ? std::nullopt : std::optional(failure);
  const std::vector<std::string> failures = exchange(failure);
  for (std::size_t rank = 0; rank < failures.size(); ++rank) {
    if (!failures[rank].empty()) return "rank " + std::to_string(rank) + ": " + failures[rank];
  }
  return std::nullopt;
}

StepNews RunRanks::agree(const StepNews& own) {
  if (alone()) return own;
  const at::Tensor mine =
      at::tensor({own.loss, static_cast<double>(own.off), static_cast<double>(own.signal.value_or(0))}, at::kDouble);
  StepNews agreed;
  const std::vector<at::Tensor> all = all_->all_gather(mine);
  for (const at::Tensor& theirs : all) {
    const auto* const said = theirs.const_data_ptr<double>();
    agreed.loss += said[0] / static_cast<double>(all.size());
    agreed.off += static_cast<std::uint64_t>(said[1]);
    if (said[2] != 0.0 && !agreed.signal) agreed.signal = static_cast<int>(said[2]);
  }
  return agreed;
}

}  // namespace spillway::app
