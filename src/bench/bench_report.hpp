#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <spillway/app/config/json.hpp>

namespace spillway::app {

/// Something that Spillway is measured beside: what the machine can do at most (a bound), or another program (a peer).
struct BenchReference {
  std::string name = {};        ///< Empty: the row has none.
  std::string why_absent = {};  ///< Why it could not be run; empty where it was.
};

/// What a row is to reach: a ratio to its bound or to its peer.
struct BenchBar {
  enum class To : std::uint8_t { kBound, kPeer };
  double ratio = 1.0;
  To to = To::kBound;
};

/// One round: the three measured shortly after one another, so that a drift of the machine touches all of them alike.
struct BenchRound {
  double value = 0.0;
  std::optional<double> bound;
  std::optional<double> peer;
};

/// What a row is about.
struct BenchRowHead {
  std::string name;
  std::string unit;
  BenchReference bound = {};
  BenchReference peer = {};
  std::optional<BenchBar> bar = {};
  bool smaller_is_better = false;  ///< Of the values. Ratios are turned so that larger is better in any case.
};

/// One row of a benchmark. Values are medians over the rounds; a ratio is the median of the rounds' ratios.
struct BenchRow {
  BenchRowHead head;
  double value = 0.0;
  std::optional<double> bound = {};
  std::optional<double> peer = {};
  std::optional<double> ratio_to_bound = {};
  std::optional<double> ratio_to_peer = {};
  std::optional<bool> met = {};
  /// Interquartile range of the ratio that the bar is about, else of that to the bound, else of that to the peer;
  /// without any, of the value relative to its median.
  double spread = 0.0;
  std::string why_absent = {};  ///< Why nothing of the row could be measured; empty where it was.
};

/// Precondition: at least one round; a reference that is present has a value in every round.
[[nodiscard]] BenchRow make_bench_row(BenchRowHead head, const std::vector<BenchRound>& rounds);

/// A row that could not be measured here: its numbers are null. Precondition: `why` is not empty.
[[nodiscard]] BenchRow absent_bench_row(BenchRowHead head, std::string why);

/// {bench, machine, rows}: the document that `spillway bench … --json` writes.
[[nodiscard]] Json bench_json(const std::string& bench, Json machine, const std::vector<BenchRow>& rows);

/// @param bench  "io": `spillway bench io`.  @throws ConfigError where `asked` names a row that is not `known`.
void check_row_names(const std::string& bench, const std::vector<std::string>& known,
                     const std::vector<std::string>& asked);

/// Finds out, before minutes of measuring, whether `path` can be written; an empty one is fine. @throws IoError.
void check_report_file(const std::string& path);

/// The rows for a person, a line each under a heading.
[[nodiscard]] std::string bench_table(const std::vector<BenchRow>& rows);

/// What numbers of one machine can be told by: processor, cores, memory, kernel, date.
[[nodiscard]] Json describe_machine();

/// Precondition: not empty.
[[nodiscard]] double quantile(std::vector<double> values, double share);

}  // namespace spillway::app
