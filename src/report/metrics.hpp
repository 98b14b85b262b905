#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <optional>

namespace spillway::app {

/// Accuracies of the encoder's features on the test set, in percent.
struct EncoderAccuracy {
  double few_label = 0.0;
  double knn = 0.0;
};

/// What one optimizer step did and cost. Bytes and seconds are those of this step; tier occupancy is that at its end.
struct StepMetrics {
  std::uint64_t step = 0;   ///< From 1.
  std::uint64_t epoch = 0;  ///< From 0.
  double loss = 0.0;
  double lr = 0.0;
  double grad_norm = 0.0;  ///< Before clipping.
  double loss_scale = 1.0;
  bool skipped = false;  ///< The optimizer left the weights alone.
  double step_s = 0.0;
  double data_stall_s = 0.0;  ///< Waited for images; not written to the file.
  double stall_s = 0.0;       ///< Of step_s, waiting for a transfer that was not hidden.
  double samples_per_s = 0.0;
  std::uint64_t read_bytes = 0;
  std::uint64_t write_bytes = 0;
  std::uint64_t device_bytes = 0;
  std::uint64_t host_bytes = 0;
  std::uint64_t disk_bytes = 0;
  std::optional<EncoderAccuracy> accuracy{};  ///< Where the encoder was measured after this step, in no step_s.
};

/// metrics.jsonl: a line of JSON per step, with the names of StepMetrics, `accuracy` where there is one. A number that
/// is not finite becomes null.
class MetricsWriter {
 public:
  /// Goes on after the first `keep_lines` lines of the file that is there; 0 begins it anew. @throws IoError.
  explicit MetricsWriter(std::filesystem::path path, std::uint64_t keep_lines = 0);
  /// The line has reached the operating system on return, so that a killed run keeps it. @throws IoError.
  void write(const StepMetrics& metrics);

 private:
  std::filesystem::path path_;
  std::ofstream file_;
};

}  // namespace spillway::app
