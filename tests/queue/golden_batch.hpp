#pragma once

#include <cstdint>
#include <vector>

#include <spillway/distributed/collective.hpp>

namespace spillway::test {

/// Runs the losses of golden file 12 on this rank's part of its batch of 8 samples and expects, in float64, the losses
/// and gradients of one process, and none of the wrong answers that the file has. Every rank calls it.
/// @param sizes  samples of each rank, 8 in all.
void expect_answers_of_one_process(distributed::Collective& ranks, const std::vector<std::int64_t>& sizes);

}  // namespace spillway::test
