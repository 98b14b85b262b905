#pragma once

#include <ostream>
#include <vector>

#include <spillway/distributed/collective.hpp>

namespace spillway::test {

/// A claim about every implementation of Collective. `check` runs on each rank of a fresh or used group, at the same
/// time, and states what it expects with GoogleTest.
struct Claim {
  const char* name;
  void (*check)(distributed::Collective& group);
};

inline void PrintTo(const Claim& claim, std::ostream* out) { *out << claim.name; }

/// The whole suite. The last claim ends the group, so that all can be checked on one group in this order.
const std::vector<Claim>& conformance_suite();

}  // namespace spillway::test
