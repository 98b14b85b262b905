#pragma once

#include <optional>
#include <string>
#include <vector>

#include <spillway/app/config/json.hpp>

namespace spillway::app {

/// Something that Spillway is measured beside: what the machine can do at most (a bound), or another program (a peer).
struct BenchReference {
  std::string name;
  std::string why_absent = {};  ///< Why it could not be run; empty where it was.
};

/// One round: the three measured shortly after one another, so that a drift of the machine touches all of them alike.
/// Rates: larger is better.
struct BenchRound {
  double value = 0.0;
  std::optional<double> bound;
  std::optional<double> peer;
};

/// One row of a benchmark. Values are medians over the rounds; a ratio is the median of the rounds' ratios.
struct BenchRow {
  std::string name;
  std::string unit;
  double value = 0.0;
  BenchReference bound_reference;
  std::optional<double> bound;
  BenchReference peer_reference;
  std::optional<double> peer;
  std::optional<double> ratio_to_bound;
  std::optional<double> ratio_to_peer;
  std::optional<double> bar;  ///< The ratio to the bound that is aimed at.
  std::optional<bool> met;
  double spread =
      0.0;  ///< Interquartile range of the ratio to the bound; without one, of the value relative to its median.
};

/// Precondition: at least one round; a reference that is present has a value in every round.
[[nodiscard]] BenchRow make_bench_row(std::string name, std::string unit, BenchReference bound, BenchReference peer,
                                      std::optional<double> bar, const std::vector<BenchRound>& rounds);

/// {bench, machine, rows}: the document that `spillway bench … --json` writes.
[[nodiscard]] Json bench_json(const std::string& bench, Json machine, const std::vector<BenchRow>& rows);

/// The rows for a person, a line each under a heading.
[[nodiscard]] std::string bench_table(const std::vector<BenchRow>& rows);

/// What numbers of one machine can be told by: processor, cores, memory, kernel, date.
[[nodiscard]] Json describe_machine();

/// Precondition: not empty.
[[nodiscard]] double quantile(std::vector<double> values, double share);

}  // namespace spillway::app
