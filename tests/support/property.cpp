#include "support/property.hpp"

#include <gtest/gtest.h>

#include <cstdlib>
#include <exception>
#include <limits>
#include <stdexcept>
#include <string>

namespace spillway::test {

std::uint64_t Random::below(std::uint64_t bound) {
  // Values past the last whole multiple of the bound would make small results likelier.
  const std::uint64_t excess = (std::numeric_limits<std::uint64_t>::max() % bound + 1) % bound;
  std::uint64_t value = engine_();
  while (value > std::numeric_limits<std::uint64_t>::max() - excess) value = engine_();
  return value % bound;
}

std::uint64_t Random::between(std::uint64_t low, std::uint64_t high) {
  const std::uint64_t span = high - low;
  if (span == std::numeric_limits<std::uint64_t>::max()) return engine_();
  return low + below(span + 1);
}

double Random::unit() { return static_cast<double>(engine_() >> 11) * 0x1p-53; }

namespace {

void run_round(std::uint64_t seed, const std::function<void(Random&)>& body) {
  SCOPED_TRACE("to replay this round alone: SPILLWAY_SEED=" + std::to_string(seed));
  Random random(seed);
  try {
    body(random);
  } catch (const std::exception& error) {
    ADD_FAILURE() << "unexpected exception: " << error.what();
  }
}

}  // namespace

void for_random_seeds(int rounds, const std::function<void(Random&)>& body) {
  if (const char* replayed = std::getenv("SPILLWAY_SEED")) {
    run_round(std::stoull(replayed), body);
    return;
  }
  std::random_device device;
  const std::uint64_t first = (std::uint64_t{device()} << 32) | device();
  for (int round = 0; round < rounds && !::testing::Test::HasFailure(); ++round) {
    run_round(first + static_cast<std::uint64_t>(round), body);
  }
}

}  // namespace spillway::test
