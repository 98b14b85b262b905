#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include <spillway/app/bench/io_job.hpp>
#include <spillway/app/bench/peer_process.hpp>
#include <spillway/app/bench/scratch_folder.hpp>

namespace spillway::app {

/// Where `scripts/bootstrap peers` puts what it installs: peers/ in the cache folder.
[[nodiscard]] std::string default_peers_folder();

/// What DeepSpeed's async_io can be set to, as `ds_io` names it.
struct DeepSpeedSetting {
  std::uint64_t block_bytes = 1U << 20;
  unsigned depth = 32;
  unsigned threads = 1;  ///< intra_op_parallelism.
  bool overlap_events = true;
};

[[nodiscard]] std::string describe(const DeepSpeedSetting& setting);

/// DeepSpeed's async_io, the op that its NVMe offload stands on: one call moves the whole file between it and a tensor
/// in memory that its own allocator has locked. Runs in a process of its own.
class DeepSpeedPeer {
 public:
  /// Why it can't be run; empty where it can be tried.
  [[nodiscard]] static std::string unavailable(const std::string& peers_folder);
  /// @throws Error, with what it says, if it does not start.
  explicit DeepSpeedPeer(const std::string& peers_folder);

  /// Of release and torch, as it says itself.
  [[nodiscard]] const std::string& name() const noexcept { return process_.name(); }
  /// Reads or overwrites the file; block size and depth of the job are replaced by the setting's. The processor time is
  /// that of its process. @throws Error. Precondition: not a mix.
  [[nodiscard]] IoCost measure(const IoJob& job, const DeepSpeedSetting& setting);
  /// The quickest of a sweep over block sizes, depths and threads.
  [[nodiscard]] DeepSpeedSetting best_setting(const IoJob& job);

 private:
  PeerProcess process_;
};

/// A training step of DeepSpeed's ZeRO-3 on one rank with bf16 weights, its float32 state on NVMe, in
/// sub-groups of 32 million elements. Runs in a process of its own.
class ZeroStepPeer {
 public:
  /// Why it can't be run; empty where it can be tried.
  [[nodiscard]] static std::string unavailable(const std::string& peers_folder);
  /// @param folder  For its state, which it leaves behind and this object removes. @param numel  Of its weights, about,
  /// in `tensors` square matrices.
  /// @throws Error, with what it says, if it does not start.
  ZeroStepPeer(const std::string& peers_folder, const std::string& folder, std::uint64_t numel, std::uint64_t tensors);

  [[nodiscard]] const std::string& name() const noexcept { return process_.name(); }
  /// Millions of elements a second in its engine's step(), after a forward and backward pass. @throws Error.
  [[nodiscard]] double rate();
  /// Most memory that its process had resident up to the last rate().
  [[nodiscard]] double peak_bytes() const noexcept { return peak_bytes_; }

 private:
  ScratchFolder folder_;
  PeerProcess process_;
  double numel_ = 0.0;
  double peak_bytes_ = 0.0;
};

}  // namespace spillway::app
