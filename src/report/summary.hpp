#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include <spillway/app/config/json.hpp>

namespace spillway::app {

/// Accuracies of one kind in percent.
struct Accuracies {
  double raw = 0.0;        ///< Of the pixels.
  double untrained = 0.0;  ///< Of the encoder before the first step.
  double trained = 0.0;
};

struct TierSummary {
  std::uint64_t budget_bytes = 0;
  std::uint64_t peak_bytes = 0;
};

/// What a run came to. Bytes are those of the whole run, on several ranks of rank 0.
struct Summary {
  std::uint64_t steps = 0;
  std::uint64_t skipped_steps = 0;  ///< Of them, as gradients were not finite.
  double loss_first = 0.0;
  double loss_last = 0.0;
  Accuracies accuracy;      ///< By a few labels.
  Accuracies knn_accuracy;  ///< By nearest neighbours.
  double seconds = 0.0;
  double stall_share = 0.0;       ///< Of the time in steps, 0 to 1.
  double data_stall_share = 0.0;  ///< The same of what training waited for its images.
  std::uint64_t read_bytes = 0;
  std::uint64_t write_bytes = 0;
  std::uint64_t predicted_read_bytes = 0;  ///< What was said before the first step of a run to its end.
  std::uint64_t predicted_write_bytes = 0;
  std::uint64_t steps_off_prediction = 0;  ///< Steps in which a rank moved other bytes than predicted.
  TierSummary device;
  TierSummary host;
  TierSummary disk;
  std::uint64_t peak_rss_bytes = 0;  ///< Of the process, LibTorch's memory included.
  std::uint64_t threads = 0;         ///< Of LibTorch: part of a run's identity.
  std::string weights_xxh3;          ///< Equal hashes mean equal bits.
};

/// The summary under the names of its fields, the tiers in an object `tiers`, kNN accuracies in `accuracy.knn`.
[[nodiscard]] Json to_json(const Summary& summary);

/// Undoes to_json(). What is missing keeps its default; null is not a number.
[[nodiscard]] Summary summary_of(const Json& json);

/// A few lines for a person: losses, accuracies, bytes per step, stall, peak of each tier against its budget.
[[nodiscard]] std::string describe(const Summary& summary);

/// Writes a JSON document so that `path` holds either what it held or the whole new text: beside it, then renamed.
/// @throws IoError; then `path` is as it was.
void write_json_file(const std::filesystem::path& path, const Json& json);

}  // namespace spillway::app
