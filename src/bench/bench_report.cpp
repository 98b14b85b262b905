#include <spillway/app/bench/bench_report.hpp>

#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <ctime>
#include <fstream>

#include <spillway/offload/check.hpp>

namespace spillway::app {
namespace {

Json optional_json(const std::optional<double>& value) { return value ? Json(*value) : Json(nullptr); }

Json row_json(const BenchRow& row) {
  Json::Object members{{"name", row.name},
                       {"value", row.value},
                       {"unit", row.unit},
                       {"bound", optional_json(row.bound)},
                       {"bound_name", row.bound_reference.name},
                       {"peer", optional_json(row.peer)},
                       {"peer_name", row.peer_reference.name},
                       {"ratio_to_bound", optional_json(row.ratio_to_bound)},
                       {"ratio_to_peer", optional_json(row.ratio_to_peer)},
                       {"bar", optional_json(row.bar)},
                       {"met", row.met ? Json(*row.met) : Json(nullptr)},
                       {"spread", row.spread}};
  std::string why;
  for (const BenchReference& reference : {row.bound_reference, row.peer_reference}) {
    if (!reference.why_absent.empty()) {
      why += (why.empty() ? "" : "; ") + reference.name + ": " + reference.why_absent;
    }
  }
  if (!why.empty()) {
    members.emplace_back("why", why);
  }
  return members;
}

std::optional<double> median_of(const std::vector<BenchRound>& rounds, std::optional<double> BenchRound::*member) {
  std::vector<double> values;
  for (const BenchRound& round : rounds) {
    if (round.*member) {
      values.push_back(*(round.*member));
    }
  }
  return values.empty() ? std::nullopt : std::optional(quantile(values, 0.5));
}

std::vector<double> ratios(const std::vector<BenchRound>& rounds, std::optional<double> BenchRound::*member) {
  std::vector<double> values;
  for (const BenchRound& round : rounds) {
    if (round.*member) {
      values.push_back(round.value / *(round.*member));
    }
  }
  return values;
}

double interquartile_range(const std::vector<double>& values) {
  return quantile(values, 0.75) - quantile(values, 0.25);
}

std::string number(const std::optional<double>& value, const char* format = "%.2f") {
  if (!value) {
    return "-";
  }
  std::array<char, 64> text{};
  std::snprintf(text.data(), text.size(), format, *value);
  return text.data();
}

std::string cpu_model() {
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);) {
    if (line.rfind("model name", 0) == 0) {
      return line.substr(std::min(line.find(':') + 2, line.size()));
    }
  }
  return "unknown";
}

std::string today() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  ::gmtime_r(&now, &parts);
  std::array<char, 16> text{};
  std::strftime(text.data(), text.size(), "%Y-%m-%d", &parts);
  return text.data();
}

}  // namespace

double quantile(std::vector<double> values, double share) {
  SPILLWAY_CHECK(!values.empty(), "no value has no quantile");
  std::sort(values.begin(), values.end());
  const double at = share * static_cast<double>(values.size() - 1);
  const auto below = static_cast<std::size_t>(at);
  const std::size_t above = std::min(below + 1, values.size() - 1);
  return std::lerp(values[below], values[above], at - static_cast<double>(below));
}

BenchRow make_bench_row(std::string name, std::string unit, BenchReference bound, BenchReference peer,
                        std::optional<double> bar, const std::vector<BenchRound>& rounds) {
  BenchRow row{.name = std::move(name),
               .unit = std::move(unit),
               .bound_reference = std::move(bound),
               .bound = median_of(rounds, &BenchRound::bound),
               .peer_reference = std::move(peer),
               .peer = median_of(rounds, &BenchRound::peer),
               .ratio_to_bound = {},
               .ratio_to_peer = {},
               .bar = bar,
               .met = {}};
  std::vector<double> values;
  for (const BenchRound& round : rounds) {
    values.push_back(round.value);
  }
  row.value = quantile(values, 0.5);
  row.spread = interquartile_range(values) / row.value;
  if (const std::vector<double> to_bound = ratios(rounds, &BenchRound::bound); !to_bound.empty()) {
    row.ratio_to_bound = quantile(to_bound, 0.5);
    row.spread = interquartile_range(to_bound);
    if (bar) {
      row.met = *row.ratio_to_bound >= *bar;
    }
  }
  if (const std::vector<double> to_peer = ratios(rounds, &BenchRound::peer); !to_peer.empty()) {
    row.ratio_to_peer = quantile(to_peer, 0.5);
  }
  return row;
}

Json bench_json(const std::string& bench, Json machine, const std::vector<BenchRow>& rows) {
  Json::Array list;
  for (const BenchRow& row : rows) {
    list.push_back(row_json(row));
  }
  return Json::Object{{"bench", bench}, {"machine", std::move(machine)}, {"rows", std::move(list)}};
}

std::string bench_table(const std::vector<BenchRow>& rows) {
  std::array<char, 256> line{};
  const auto format = [&line](const char* name, const std::string& value, const std::string& bound,
                              const std::string& peer, const std::string& to_bound, const std::string& to_peer,
                              const std::string& spread, const std::string& bar) {
    std::snprintf(line.data(), line.size(), "%-12s %10s %10s %10s %10s %9s %8s  %s\n", name, value.c_str(),
                  bound.c_str(), peer.c_str(), to_bound.c_str(), to_peer.c_str(), spread.c_str(), bar.c_str());
    return std::string(line.data());
  };
  std::string text = format("", "Spillway", "bound", "peer", "of bound", "of peer", "spread", "bar");
  std::string unit;
  for (const BenchRow& row : rows) {
    const std::string bar = row.bar ? number(row.bar) + (!row.met ? "" : *row.met ? " met" : " missed") : "-";
    text += format(row.name.c_str(), number(row.value), number(row.bound), number(row.peer), number(row.ratio_to_bound),
                   number(row.ratio_to_peer), number(row.spread, "%.3f"), bar);
    unit = row.unit;
  }
  if (!rows.empty()) {
    text += "Rates in " + unit + ".\n";
    for (const auto& [what, reference] :
         {std::pair("Bound", rows.front().bound_reference), std::pair("Peer", rows.front().peer_reference)}) {
      text += std::string(what) + ": " + reference.name +
              (reference.why_absent.empty() ? "" : ", not run: " + reference.why_absent) + ".\n";
    }
  }
  return text;
}

Json describe_machine() {
  utsname system{};
  ::uname(&system);
  const auto pages = static_cast<std::uint64_t>(::sysconf(_SC_PHYS_PAGES));
  const auto page_bytes = static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
  return Json::Object{{"cpu", cpu_model()},
                      {"cores", static_cast<std::uint64_t>(::sysconf(_SC_NPROCESSORS_ONLN))},
                      {"memory_bytes", pages * page_bytes},
                      {"kernel", std::string(system.release)},
                      {"date", today()}};
}

}  // namespace spillway::app
