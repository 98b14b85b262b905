#include <spillway/app/report/summary.hpp>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <fstream>
#include <limits>
#include <string_view>
#include <system_error>

#include <spillway/offload/error.hpp>
#include <spillway/offload/format_bytes.hpp>

namespace spillway::app {
namespace {

Json::Object accuracies_json(const Accuracies& accuracies) {
  return {{"raw", accuracies.raw}, {"untrained", accuracies.untrained}, {"trained", accuracies.trained}};
}

Json accuracy_json(const Summary& summary) {
  Json::Object accuracy = accuracies_json(summary.accuracy);
  accuracy.emplace_back("knn", accuracies_json(summary.knn_accuracy));
  return accuracy;
}

std::string accuracy_line(const char* name, const Accuracies& accuracies) {
  std::array<char, 160> text{};
  std::snprintf(text.data(), text.size(),
                "  %s accuracy: raw pixels %.1f %%, untrained encoder %.1f %%, trained encoder %.1f %%\n", name,
                accuracies.raw, accuracies.untrained, accuracies.trained);
  return text.data();
}

Json tier_json(const TierSummary& tier) {
  return Json::Object{{"budget_bytes", tier.budget_bytes}, {"peak_bytes", tier.peak_bytes}};
}

[[noreturn]] void fail(const std::string& operation, const std::filesystem::path& path, int error_number) {
  throw IoError({.operation = operation,
                 .path = path.string(),
                 .error_number = error_number,
                 .advice = "the run's folder (--out) must be writable and have space"});
}

std::string tier_line(const char* name, const TierSummary& tier) {
  if (tier.budget_bytes == 0) {
    return "";  // A tier that the run does not have.
  }
  return std::string("  ") + name + " peak " + offload::format_bytes(tier.peak_bytes) + " of " +
         offload::format_bytes(tier.budget_bytes) + "\n";
}

void read(const Json& json, std::string_view key, std::uint64_t& value) {
  const Json* const found = json.find(key);
  if (const auto* const number = found == nullptr ? nullptr : found->get_if<std::uint64_t>()) value = *number;
}

void read(const Json& json, std::string_view key, double& value) {
  const Json* const found = json.find(key);
  if (found == nullptr) return;
  if (found->is_null()) value = std::numeric_limits<double>::quiet_NaN();
  if (const auto* const number = found->get_if<double>()) value = *number;
  if (const auto* const whole = found->get_if<std::uint64_t>()) value = static_cast<double>(*whole);
}

void read(const Json& json, std::string_view key, Accuracies& accuracies) {
  if (const Json* const found = json.find(key)) {
    read(*found, "raw", accuracies.raw);
    read(*found, "untrained", accuracies.untrained);
    read(*found, "trained", accuracies.trained);
  }
}

void read(const Json& json, std::string_view key, TierSummary& tier) {
  if (const Json* const found = json.find(key)) {
    read(*found, "budget_bytes", tier.budget_bytes);
    read(*found, "peak_bytes", tier.peak_bytes);
  }
}

std::string prediction(const Summary& summary) {
  return summary.steps_off_prediction == 0
             ? "as predicted in every step"
             : "other than predicted in " + std::to_string(summary.steps_off_prediction) + " steps";
}

}  // namespace

Json to_json(const Summary& summary) {
  return Json::Object{
      {"steps", summary.steps},
      {"skipped_steps", summary.skipped_steps},
      {"loss_first", summary.loss_first},
      {"loss_last", summary.loss_last},
      {"accuracy", accuracy_json(summary)},
      {"seconds", summary.seconds},
      {"stall_share", summary.stall_share},
      {"data_stall_share", summary.data_stall_share},
      {"read_bytes", summary.read_bytes},
      {"write_bytes", summary.write_bytes},
      {"predicted_read_bytes", summary.predicted_read_bytes},
      {"predicted_write_bytes", summary.predicted_write_bytes},
      {"steps_off_prediction", summary.steps_off_prediction},
      {"tiers", Json::Object{{"device", tier_json(summary.device)},
                             {"host", tier_json(summary.host)},
                             {"disk", tier_json(summary.disk)}}},
      {"peak_rss_bytes", summary.peak_rss_bytes},
      {"threads", summary.threads},
      {"weights_xxh3", summary.weights_xxh3},
  };
}

Summary summary_of(const Json& json) {
  Summary summary;
  read(json, "steps", summary.steps);
  read(json, "skipped_steps", summary.skipped_steps);
  read(json, "loss_first", summary.loss_first);
  read(json, "loss_last", summary.loss_last);
  read(json, "accuracy", summary.accuracy);
  if (const Json* const accuracy = json.find("accuracy")) read(*accuracy, "knn", summary.knn_accuracy);
  read(json, "seconds", summary.seconds);
  read(json, "stall_share", summary.stall_share);
  read(json, "data_stall_share", summary.data_stall_share);
  read(json, "read_bytes", summary.read_bytes);
  read(json, "write_bytes", summary.write_bytes);
  read(json, "predicted_read_bytes", summary.predicted_read_bytes);
  read(json, "predicted_write_bytes", summary.predicted_write_bytes);
  read(json, "steps_off_prediction", summary.steps_off_prediction);
  if (const Json* const tiers = json.find("tiers")) {
    read(*tiers, "device", summary.device);
    read(*tiers, "host", summary.host);
    read(*tiers, "disk", summary.disk);
  }
  read(json, "peak_rss_bytes", summary.peak_rss_bytes);
  read(json, "threads", summary.threads);
  if (const Json* const hash = json.find("weights_xxh3"); hash != nullptr && hash->get_if<std::string>() != nullptr) {
    summary.weights_xxh3 = *hash->get_if<std::string>();
  }
  return summary;
}

std::string describe(const Summary& summary) {
  std::array<char, 512> text{};
  std::snprintf(text.data(), text.size(),
                "%llu steps in %.1f s, %.1f %% of the step time stalled\n"
                "  loss %.4f at first, %.4f at last\n",
                static_cast<unsigned long long>(summary.steps), summary.seconds, 100.0 * summary.stall_share,
                summary.loss_first, summary.loss_last);
  const std::uint64_t steps = std::max<std::uint64_t>(1, summary.steps);
  const std::string skipped =
      summary.skipped_steps == 0 ? "" : "  " + std::to_string(summary.skipped_steps) + " steps skipped\n";
  return text.data() + skipped + accuracy_line("few-label", summary.accuracy) +
         accuracy_line("kNN", summary.knn_accuracy) +
         ("  disk per step: read " + offload::format_bytes(summary.read_bytes / steps) + ", written " +
          offload::format_bytes(summary.write_bytes / steps) + "; " + prediction(summary) + "\n") +
         tier_line("device", summary.device) + tier_line("host  ", summary.host) + tier_line("disk  ", summary.disk) +
         "  process peak " + offload::format_bytes(summary.peak_rss_bytes) + "\n  weights " + summary.weights_xxh3 +
         "\n";
}

void write_json_file(const std::filesystem::path& path, const Json& json) {
  std::filesystem::path beside = path;
  beside += ".partial";
  {
    std::ofstream file(beside, std::ios::trunc);
    if (!file) {
      fail("open", beside, errno);
    }
    file << json.dump(2) << '\n' << std::flush;
    if (!file) {
      const int error_number = errno;
      std::error_code ignored;
      std::filesystem::remove(beside, ignored);
      fail("write", beside, error_number);
    }
  }
  std::error_code error;
  std::filesystem::rename(beside, path, error);
  if (error) {
    std::error_code ignored;
    std::filesystem::remove(beside, ignored);
    fail("rename", path, error.value());
  }
}

}  // namespace spillway::app
