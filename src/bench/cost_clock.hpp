#pragma once

#include <spillway/app/bench/io_job.hpp>

namespace spillway::app {

/// Measures from its construction on: the clock on the wall, and the processor time of all threads of this process,
/// kernel workers that act for it included.
class CostClock {
 public:
  CostClock();
  [[nodiscard]] IoCost elapsed() const;

 private:
  IoCost start_;
};

}  // namespace spillway::app
