#include <spillway/app/training/weights_hash.hpp>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>
#include <utility>

#include <spillway/offload/checksum.hpp>
#include <spillway/offload/error.hpp>

namespace spillway::app {

std::string weights_xxh3(std::vector<NamedTensor> parameters) {
  std::ranges::sort(parameters, {}, &NamedTensor::name);
  std::uint64_t hash = 0;
  for (const NamedTensor& parameter : parameters) {
    const at::Tensor values = parameter.tensor.detach().contiguous();
    // Each hash seeds the next one, so that the order counts.
    hash = offload::xxh3_64({static_cast<const std::byte*>(values.const_data_ptr()), values.nbytes()}, hash);
  }
  std::array<char, 17> text{};
  std::snprintf(text.data(), text.size(), "%016llx", static_cast<unsigned long long>(hash));
  return text.data();
}

std::string agreed_weights(std::vector<NamedTensor> parameters, RunRanks& ranks) {
  const std::vector<std::string> hashes = ranks.exchange(weights_xxh3(std::move(parameters)));
  for (std::size_t rank = 1; rank < hashes.size(); ++rank) {
    if (hashes[rank] == hashes.front()) continue;
    throw Error("the weights on rank " + std::to_string(rank) + " are not those on rank 0 (" + hashes[rank] + " and " +
                hashes.front() + "): a machine or its memory may be at fault; resume from a checkpoint before");
  }
  return hashes.front();
}

}  // namespace spillway::app
