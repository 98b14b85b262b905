#include <spillway/app/config/batch_sizes.hpp>

#include <string>

#include <spillway/offload/error.hpp>

namespace spillway::app {
namespace {

constexpr std::uint64_t kMaxBatch = 0x7FFFFFFF;  // As each of them.

/// `whole / part`, or an error that says what does not divide.
std::uint64_t divide(std::uint64_t whole, std::uint64_t part, const std::string& meaning) {
  if (whole % part != 0) {
    throw ConfigError("train_batch_size: " + std::to_string(whole) + " is no multiple of " + std::to_string(part) +
                      ", " + meaning + "; change one of them");
  }
  return whole / part;
}

}  // namespace

BatchSizes resolve_batch_sizes(const BatchSizes& given, std::uint64_t world_size, std::uint64_t default_micro) {
  BatchSizes sizes = given;
  if (sizes.train != 0 && sizes.micro == 0) {
    sizes.accumulation = sizes.accumulation == 0 ? 1 : sizes.accumulation;
    sizes.micro =
        divide(sizes.train, sizes.accumulation * world_size, "gradient_accumulation_steps times the number of ranks");
    return sizes;
  }
  sizes.micro = sizes.micro == 0 ? default_micro : sizes.micro;
  if (sizes.train != 0 && sizes.accumulation == 0) {
    sizes.accumulation =
        divide(sizes.train, sizes.micro * world_size, "train_micro_batch_size_per_gpu times the number of ranks");
    return sizes;
  }
  sizes.accumulation = sizes.accumulation == 0 ? 1 : sizes.accumulation;
  if (sizes.micro * world_size > kMaxBatch / sizes.accumulation) {
    throw ConfigError("train_batch_size: train_micro_batch_size_per_gpu " + std::to_string(sizes.micro) +
                      " * gradient_accumulation_steps " + std::to_string(sizes.accumulation) + " * " +
                      std::to_string(world_size) + " ranks is more than " + std::to_string(kMaxBatch));
  }
  const std::uint64_t product = sizes.micro * sizes.accumulation * world_size;
  if (sizes.train != 0 && sizes.train != product) {
    throw ConfigError("train_batch_size: " + std::to_string(sizes.train) +
                      " contradicts train_micro_batch_size_per_gpu " + std::to_string(sizes.micro) +
                      " * gradient_accumulation_steps " + std::to_string(sizes.accumulation) + " * " +
                      std::to_string(world_size) + " ranks = " + std::to_string(product) + "; leave one of them out");
  }
  sizes.train = product;
  return sizes;
}

}  // namespace spillway::app
