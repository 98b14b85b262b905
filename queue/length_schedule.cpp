#include <algorithm>
#include <cmath>
#include <string>

#include <spillway/offload/error.hpp>
#include <spillway/queue/length_schedule.hpp>

namespace spillway::queue {

std::int64_t LengthSchedule::rows_at(std::int64_t step) const {
  if (first < 1 || last < 1 || steps < 0 || step < 0) {
    throw ConfigError("length schedule: from " + std::to_string(first) + " to " + std::to_string(last) + " rows in " +
                      std::to_string(steps) + " steps, asked for at step " + std::to_string(step) +
                      "; wanted lengths of 1 or more, and steps of 0 or more");
  }
  if (step >= steps) return last;
  const double done = static_cast<double>(step) / static_cast<double>(steps);
  const auto from = static_cast<double>(first);
  const auto to = static_cast<double>(last);
  const double rows = growth == Growth::kLinear ? from + (to - from) * done : from * std::pow(to / from, done);
  return std::clamp(static_cast<std::int64_t>(std::llround(rows)), std::min(first, last), std::max(first, last));
}

}  // namespace spillway::queue
