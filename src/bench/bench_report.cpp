#include <spillway/app/bench/bench_report.hpp>

#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <utility>

#include <spillway/offload/check.hpp>
#include <spillway/offload/error.hpp>

namespace spillway::app {
namespace {

Json optional_json(const std::optional<double>& value) { return value ? Json(*value) : Json(nullptr); }

Json name_json(const BenchReference& reference) {
  return reference.name.empty() ? Json(nullptr) : Json(reference.name);
}

Json row_json(const BenchRow& row) {
  const BenchRowHead& head = row.head;
  const bool to_peer = head.bar && head.bar->to == BenchBar::To::kPeer;
  const bool measured = row.why_absent.empty();
  Json::Object members{{"name", head.name},
                       {"value", measured ? Json(row.value) : Json(nullptr)},
                       {"unit", head.unit},
                       {"bound", optional_json(row.bound)},
                       {"bound_name", name_json(head.bound)},
                       {"peer", optional_json(row.peer)},
                       {"peer_name", name_json(head.peer)},
                       {"ratio_to_bound", optional_json(row.ratio_to_bound)},
                       {"ratio_to_peer", optional_json(row.ratio_to_peer)},
                       {"bar", head.bar ? Json(head.bar->ratio) : Json(nullptr)},
                       {"bar_to", head.bar ? Json(to_peer ? "peer" : "bound") : Json(nullptr)},
                       {"met", row.met ? Json(*row.met) : Json(nullptr)},
                       {"spread", measured ? Json(row.spread) : Json(nullptr)}};
  std::string why = row.why_absent;
  for (const BenchReference& reference : {head.bound, head.peer}) {
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

std::vector<double> ratios(const BenchRowHead& head, const std::vector<BenchRound>& rounds,
                           std::optional<double> BenchRound::*member) {
  std::vector<double> values;
  for (const BenchRound& round : rounds) {
    if (round.*member) {
      const double reference = *(round.*member);
      values.push_back(head.smaller_is_better ? reference / round.value : round.value / reference);
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

BenchRow make_bench_row(BenchRowHead head, const std::vector<BenchRound>& rounds) {
  BenchRow row{.head = std::move(head)};
  row.bound = median_of(rounds, &BenchRound::bound);
  row.peer = median_of(rounds, &BenchRound::peer);
  std::vector<double> values;
  for (const BenchRound& round : rounds) {
    values.push_back(round.value);
  }
  row.value = quantile(values, 0.5);
  row.spread = row.value == 0.0 ? 0.0 : interquartile_range(values) / row.value;
  const auto take = [&](BenchBar::To to, std::optional<double> BenchRound::*member, std::optional<double>& ratio) {
    const std::vector<double> all = ratios(row.head, rounds, member);
    if (all.empty()) {
      return;
    }
    ratio = quantile(all, 0.5);
    row.spread = interquartile_range(all);
    if (row.head.bar && row.head.bar->to == to) {
      row.met = *ratio >= row.head.bar->ratio;
    }
  };
  // The one that the bar is about comes last, and its spread stays.
  const bool to_peer = row.head.bar && row.head.bar->to == BenchBar::To::kPeer;
  if (to_peer) {
    take(BenchBar::To::kBound, &BenchRound::bound, row.ratio_to_bound);
  }
  take(BenchBar::To::kPeer, &BenchRound::peer, row.ratio_to_peer);
  if (!to_peer) {
    take(BenchBar::To::kBound, &BenchRound::bound, row.ratio_to_bound);
  }
  return row;
}

BenchRow absent_bench_row(BenchRowHead head, std::string why) {
  SPILLWAY_CHECK(!why.empty(), "a row is absent for a reason");
  BenchRow row{.head = std::move(head)};
  row.why_absent = std::move(why);
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
  const auto format = [&line](const char* name, const char* unit, const std::string& value, const std::string& bound,
                              const std::string& peer, const std::string& to_bound, const std::string& to_peer,
                              const std::string& spread, const std::string& bar) {
    std::snprintf(line.data(), line.size(), "%-20s %9s %9s %9s %9s %9s %8s  %-12s %s\n", name, value.c_str(),
                  bound.c_str(), peer.c_str(), to_bound.c_str(), to_peer.c_str(), spread.c_str(), unit, bar.c_str());
    return std::string(line.data());
  };
  std::string text = format("", "unit", "Spillway", "bound", "peer", "of bound", "of peer", "spread", "bar");
  std::vector<std::pair<std::string, std::string>> references;  // A line on each, and the rows that it is about.
  const auto refer = [&references](const char* what, const BenchReference& reference, const std::string& row) {
    if (reference.name.empty()) {
      return;
    }
    const std::string about = std::string(what) + ": " + reference.name +
                              (reference.why_absent.empty() ? "" : ", not run: " + reference.why_absent);
    const auto known =
        std::find_if(references.begin(), references.end(), [&](const auto& entry) { return entry.first == about; });
    if (known == references.end()) {
      references.emplace_back(about, row);
    } else {
      known->second += ", " + row;
    }
  };
  for (const BenchRow& row : rows) {
    const BenchRowHead& head = row.head;
    const bool measured = row.why_absent.empty();
    const std::optional<double> value = measured ? std::optional(row.value) : std::nullopt;
    const std::optional<double> spread = measured ? std::optional(row.spread) : std::nullopt;
    const bool small = row.value < 0.1;
    const char* const digits = small ? "%.4f" : "%.2f";
    std::string bar = "-";
    if (head.bar) {
      bar = number(head.bar->ratio) + (head.bar->to == BenchBar::To::kPeer ? " of peer" : " of bound") +
            (!row.met   ? ""
             : *row.met ? ", met"
                        : ", missed");
    }
    text += format(head.name.c_str(), head.unit.c_str(), number(value, digits), number(row.bound, digits),
                   number(row.peer, digits), number(row.ratio_to_bound), number(row.ratio_to_peer),
                   number(spread, "%.3f"), bar);
    if (!measured) {
      text += "  " + head.name + " was not measured: " + row.why_absent + ".\n";
    }
    refer("Bound", head.bound, head.name);
    refer("Peer", head.peer, head.name);
  }
  for (const auto& [about, names] : references) {
    text += about + " (" + names + ").\n";
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

void check_row_names(const std::string& bench, const std::vector<std::string>& known,
                     const std::vector<std::string>& asked) {
  for (const std::string& row : asked) {
    if (std::find(known.begin(), known.end(), row) != known.end()) {
      continue;
    }
    std::string names;
    for (const std::string& name : known) {
      names += (names.empty() ? "" : ", ") + name;
    }
    throw ConfigError("spillway bench " + bench + " --rows: there is no row '" + row + "'; there are " + names);
  }
}

void check_report_file(const std::string& path) {
  if (path.empty()) {
    return;
  }
  const std::filesystem::path folder = std::filesystem::absolute(path).parent_path();
  if (::access(folder.c_str(), W_OK | X_OK) != 0) {
    throw IoError({.operation = "open",
                   .path = path,
                   .offset = 0,
                   .bytes = 0,
                   .error_number = errno,
                   .advice = "give --json a file in a folder that exists and can be written to"});
  }
}

}  // namespace spillway::app
