#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <spillway/offload/copy_stream.hpp>

namespace spillway::offload {

/// Stands in for a GPU where the order of copies is tested: memory of its own, which the host can't touch, streams that
/// pause for seeded times, and an account of every access. A copy or kernel that touches bytes which another one is not
/// known to be done with is misuse, and so is a host that changes bytes before the event behind their copy: found by
/// what was waited for, not by what happened to go wrong. Thread-safe; all host threads are taken for one.
class SimulatedDevice {
 public:
  /// @param seed  chooses the pauses; 0: none.
  explicit SimulatedDevice(std::uint64_t memory_bytes, unsigned seed = 0);
  /// Its streams may outlive it, and its memory lives as long as they do.
  ~SimulatedDevice();
  SimulatedDevice(const SimulatedDevice&) = delete;
  SimulatedDevice& operator=(const SimulatedDevice&) = delete;

  /// Device memory, for the copies of its streams: a host that reads or writes it is ended by the operating system.
  /// Aligned to pages; kept until the device dies. @throws Error if there is not enough left.
  [[nodiscard]] std::span<std::byte> allocate(std::uint64_t bytes);
  /// The same bytes as kernels see them.
  [[nodiscard]] std::span<std::byte> kernel_view(std::span<std::byte> device_memory) const;
  [[nodiscard]] std::unique_ptr<CopyStream> make_stream();

  /// Queues work on device memory. `reads` and `writes` are all that it touches, as allocate() gave them; it touches
  /// them through kernel_view(). @throws Error if the stream is not one of this device.
  void launch(CopyStream& stream, std::vector<std::span<const std::byte>> reads,
              std::vector<std::span<std::byte>> writes, std::function<void()> kernel);

  /// The host is about to read, or change, memory that copies use: misuse unless it has seen their events done.
  void host_reads(std::span<const std::byte> host_memory);
  void host_writes(std::span<const std::byte> host_memory);

  /// One line for each misuse: who touched what, and what was not waited for.
  [[nodiscard]] std::vector<std::string> misuses() const;

 private:
  class Memory;
  class Stream;
  class Recorded;
  struct Shared;
  std::shared_ptr<Shared> shared_;
};

}  // namespace spillway::offload
