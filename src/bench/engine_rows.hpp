#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <spillway/app/bench/bench_report.hpp>
#include <spillway/app/bench/deepspeed_peer.hpp>
#include <spillway/app/bench/engine_side.hpp>
#include <spillway/app/bench/io_job.hpp>
#include <spillway/offload/aligned_block.hpp>
#include <spillway/offload/swap_file.hpp>

namespace spillway::app {

/// The rows of `spillway bench io` that are about the storage engine. Each function blocks while it measures.
class EngineRows {
 public:
  struct Options {
    std::string folder;
    std::string peers_folder;
    std::uint64_t bytes = 0;  ///< A multiple of IoJob's request_bytes.
    unsigned rounds = 0;
  };
  /// Makes the file that is measured, checks that the engine brings back what it wrote, and fills the file.
  explicit EngineRows(Options options);

  /// Chunks of 1 MiB, 32 in flight, beside the loop and fio.
  [[nodiscard]] BenchRow row(const std::string& name, IoDirection direction);
  /// Chunk and depth that suit the engine best here, beside the loop with the same and DeepSpeed with its best. Of one
  /// measurement: throughput beside the loop, the same beside DeepSpeed (unless `peer_bar` is empty), and processor
  /// time.
  [[nodiscard]] std::vector<BenchRow> tuned_rows(const std::string& name, IoDirection direction,
                                                 std::optional<double> peer_bar);
  /// In preallocated files that were never written, a new one for each measurement.
  [[nodiscard]] BenchRow first_write_row();
  /// fio beside itself: what a ratio of 1 looks like on this machine.
  [[nodiscard]] BenchRow noise_row(const std::string& name, IoDirection direction);

  /// What the numbers depend on, as members for `machine`.
  [[nodiscard]] Json::Object facts() const;
  [[nodiscard]] std::string engine_line() const;

 private:
  struct Round {
    IoCost value;
    std::optional<IoCost> bound;
    std::optional<IoCost> deepspeed;
  };

  [[nodiscard]] IoJob job(IoDirection direction) const;
  [[nodiscard]] IoJob tuned_job(IoDirection direction);
  void start_deepspeed();
  [[nodiscard]] bool tune_deepspeed(const IoJob& job, DeepSpeedSetting& setting);
  [[nodiscard]] std::vector<Round> tuned_rounds(const IoJob& job, bool beside_deepspeed);

  const Options options_;
  offload::AlignedBlock memory_;
  offload::SwapFile file_;
  EngineSide engine_;
  const BenchReference bound_;
  const BenchReference fio_;
  BenchReference deepspeed_{.name = "DeepSpeed async_io"};
  bool deepspeed_tried_ = false;
  std::unique_ptr<DeepSpeedPeer> deepspeed_side_;
  Json::Object settings_;  // What was tuned, and to what.
};

}  // namespace spillway::app
