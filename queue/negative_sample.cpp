#include <algorithm>
#include <limits>
#include <random>
#include <unordered_set>
#include <vector>

#include <ATen/ops/empty.h>

#include <spillway/offload/error.hpp>
#include <spillway/queue/negative_bank.hpp>
#include <spillway/queue/negative_sample.hpp>

namespace spillway::queue {

namespace {

/// Uniform in [0, bound); the standard's distribution is another one in each library.
std::int64_t below(std::mt19937_64& generator, std::int64_t bound) {
  const auto range = static_cast<std::uint64_t>(bound);
  constexpr std::uint64_t kMost = std::numeric_limits<std::uint64_t>::max();
  const std::uint64_t usable = kMost - kMost % range;  // A multiple of the bound: no remainder is favoured.
  std::uint64_t value = generator();
  while (value >= usable) value = generator();
  return static_cast<std::int64_t>(value % range);
}

std::vector<std::int64_t> draw_distinct(std::mt19937_64& generator, std::int64_t population, std::int64_t count) {
  std::unordered_set<std::int64_t> drawn;
  drawn.reserve(static_cast<std::size_t>(count));
  for (std::int64_t last = population - count; last < population; ++last) {
    if (!drawn.insert(below(generator, last + 1)).second) drawn.insert(last);
  }
  return {drawn.begin(), drawn.end()};
}

}  // namespace

at::Tensor draw_rows(const std::string& name, std::int64_t population, const SampleOptions& options) {
  const bool possible =
      options.rows >= 0 && (options.replacement ? population > 0 || options.rows == 0 : options.rows <= population);
  if (!possible) {
    throw ConfigError(name + ": cannot draw " + std::to_string(options.rows) + " negatives " +
                      (options.replacement ? "with" : "without") + " replacement from " + std::to_string(population) +
                      " valid rows: draw fewer, wait until the bank has filled, or draw with replacement");
  }
  std::mt19937_64 generator(options.seed);
  std::vector<std::int64_t> numbers;
  if (options.replacement) {
    numbers.resize(static_cast<std::size_t>(options.rows));
    std::generate(numbers.begin(), numbers.end(), [&] { return below(generator, population); });
  } else {
    numbers = draw_distinct(generator, population, options.rows);
  }
  std::sort(numbers.begin(), numbers.end());
  at::Tensor drawn = at::empty({options.rows}, at::TensorOptions(at::kLong));
  std::copy(numbers.begin(), numbers.end(), drawn.mutable_data_ptr<std::int64_t>());
  return drawn;
}

SampledNegatives sample_negatives(NegativeBank& bank, const SampleOptions& options, at::ScalarType dtype) {
  SampledNegatives sample;
  sample.population = bank.size();
  sample.indices = draw_rows(bank.options().name, bank.size(), options);
  sample.rows = bank.rows(sample.indices, dtype);
  sample.labels = bank.labels(sample.indices);
  return sample;
}

}  // namespace spillway::queue
