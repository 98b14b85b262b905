#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <spillway/offload/simulated_device.hpp>

namespace spillway::test {

/// Bytes that depend on `state` alone.
inline void fill(std::span<std::byte> bytes, std::uint64_t state) {
  for (std::size_t i = 0; i < bytes.size(); i += 8) {
    state = state * 6364136223846793005U + 1442695040888963407U;
    std::memcpy(bytes.data() + i, &state, std::min<std::size_t>(8, bytes.size() - i));
  }
}

/// Where a client works on its blocks: in host memory, or every fourth time on a device that they are copied to and
/// back.
class Workplace {
 public:
  /// @param largest  Bytes of the largest block. @param device_seed  Of the device's pauses (0: it makes none), if
  /// there is one.
  Workplace(std::uint64_t largest, std::optional<unsigned> device_seed) {
    if (device_seed) {
      device_ = std::make_unique<offload::SimulatedDevice>(largest, *device_seed);
      in_ = device_->make_stream();
      out_ = device_->make_stream();
      staged_ = device_->allocate(largest);
    }
  }

  /// The block as it is found there.
  std::vector<std::byte> contents(std::span<std::byte> block) {
    std::vector<std::byte> found(block.size());
    if (!on_device()) {
      std::copy(block.begin(), block.end(), found.begin());
      return found;
    }
    device_->host_writes(block);  // The store filled it.
    const std::span<std::byte> staged = copy_in(block);
    out_->wait(in_->record());
    out_->copy(found, staged);
    out_->record()->synchronize();
    device_->host_reads(found);
    return found;
  }
  /// Changes the block there; afterwards it can be given back.
  void change(std::span<std::byte> block, std::uint64_t state) {
    if (!on_device()) {
      return fill(block, state);
    }
    const std::span<std::byte> staged = copy_in(block);
    device_->launch(*in_, {staged}, {staged}, [view = device_->kernel_view(staged), state] { fill(view, state); });
    out_->wait(in_->record());
    out_->copy(block, staged);
    out_->record()->synchronize();
    device_->host_reads(block);  // As the store does: it sums it, and writes it back.
  }
  [[nodiscard]] std::vector<std::string> misuses() const {
    return device_ == nullptr ? std::vector<std::string>() : device_->misuses();
  }

 private:
  [[nodiscard]] bool on_device() { return device_ != nullptr && ++uses_ % 4 == 0; }
  std::span<std::byte> copy_in(std::span<const std::byte> block) {
    const std::span<std::byte> staged = staged_.first(block.size());
    in_->wait(out_->record());
    in_->copy(staged, block);
    return staged;
  }

  std::unique_ptr<offload::SimulatedDevice> device_;
  std::unique_ptr<offload::CopyStream> in_;
  std::unique_ptr<offload::CopyStream> out_;
  std::span<std::byte> staged_;
  std::uint64_t uses_ = 0;
};

}  // namespace spillway::test
