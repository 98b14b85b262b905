#include <spillway/app/bench/cost_clock.hpp>

#include <sys/resource.h>

#include <chrono>

namespace spillway::app {
namespace {

double seconds(const timeval& time) {
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) * 1e-6;
}

IoCost cost_so_far() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  return {.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(),
          .cpu_s = seconds(usage.ru_utime) + seconds(usage.ru_stime)};
}

}  // namespace

CostClock::CostClock() : start_(cost_so_far()) {}

IoCost CostClock::elapsed() const {
  const IoCost end = cost_so_far();
  return {.seconds = end.seconds - start_.seconds, .cpu_s = end.cpu_s - start_.cpu_s};
}

}  // namespace spillway::app
