#include <spillway/app/bench/bench_report.hpp>

#include <gtest/gtest.h>

#include <string>

namespace spillway::app::bench_report_test {
namespace {

const std::vector<BenchRound> kRounds{{.value = 2.0, .bound = 2.0, .peer = 1.0},
                                      {.value = 1.8, .bound = 2.0, .peer = 1.2},
                                      {.value = 3.8, .bound = 4.0, .peer = 1.9}};

BenchRow row(double bar, BenchBar::To to = BenchBar::To::kBound) {
  return make_bench_row({.name = "read",
                         .unit = "GB/s",
                         .bound = {.name = "loop"},
                         .peer = {.name = "fio"},
                         .bar = BenchBar{.ratio = bar, .to = to}},
                        kRounds);
}

TEST(BenchRow, TakesMediansOfValuesAndOfTheRoundsRatios) {
  const BenchRow made = row(0.9);
  EXPECT_DOUBLE_EQ(made.value, 2.0);
  EXPECT_DOUBLE_EQ(*made.bound, 2.0);
  EXPECT_DOUBLE_EQ(*made.peer, 1.2);
  EXPECT_DOUBLE_EQ(*made.ratio_to_bound, 0.95) << "not 2.0 / 2.0: the machine drifts, the rounds' ratios do not";
  EXPECT_DOUBLE_EQ(*made.ratio_to_peer, 2.0);
  EXPECT_DOUBLE_EQ(made.spread, 0.975 - 0.925);
}

TEST(BenchRow, SaysWhetherTheBarIsMet) {
  EXPECT_EQ(row(0.9).met, true);
  EXPECT_EQ(row(0.95).met, true);
  EXPECT_EQ(row(0.96).met, false);
}

TEST(BenchRow, TakesABarToThePeerToo) {
  const BenchRow made = row(2.0, BenchBar::To::kPeer);
  EXPECT_EQ(made.met, true);
  EXPECT_EQ(row(2.1, BenchBar::To::kPeer).met, false);
  EXPECT_DOUBLE_EQ(*made.ratio_to_bound, 0.95);
  EXPECT_DOUBLE_EQ(made.spread, 0.25) << "of the ratios 1.5, 2 and 2, to the peer";
}

TEST(BenchRow, TurnsRatiosWhereSmallerIsBetter) {
  const BenchRow made = make_bench_row({.name = "cpu",
                                        .unit = "CPU s/GiB",
                                        .peer = {.name = "other"},
                                        .bar = BenchBar{.ratio = 4.0, .to = BenchBar::To::kPeer},
                                        .smaller_is_better = true},
                                       {{.value = 1.0, .bound = {}, .peer = 5.0}});
  EXPECT_DOUBLE_EQ(*made.ratio_to_peer, 5.0);
  EXPECT_EQ(made.met, true);
}

TEST(BenchRow, LeavesOutWhatCouldNotBeRunAndSaysWhy) {
  const BenchRow made =
      make_bench_row({.name = "read",
                      .unit = "GB/s",
                      .bound = {.name = "loop", .why_absent = "io_uring is refused"},
                      .peer = {.name = "fio", .why_absent = "fio is not installed"},
                      .bar = BenchBar{.ratio = 0.9}},
                     {{.value = 1.0, .bound = {}, .peer = {}}, {.value = 3.0, .bound = {}, .peer = {}}});
  EXPECT_DOUBLE_EQ(made.value, 2.0);
  EXPECT_DOUBLE_EQ(made.spread, 0.5);
  const Json document = bench_json("io", Json::Object{}, {made});
  const Json& first = document.find("rows")->get_if<Json::Array>()->front();
  for (const char* name : {"bound", "peer", "ratio_to_bound", "ratio_to_peer", "met"}) {
    EXPECT_TRUE(first.find(name)->is_null()) << name;
  }
  EXPECT_EQ(*first.find("why")->get_if<std::string>(), "loop: io_uring is refused; fio: fio is not installed");
  EXPECT_NE(bench_table({made}).find("not run: fio is not installed"), std::string::npos);
}

TEST(BenchJson, HasTheMembersThatReadersRelyOn) {
  const Json document = bench_json("io", describe_machine(), {row(0.9)});
  EXPECT_EQ(*document.find("bench")->get_if<std::string>(), "io");
  for (const char* name : {"cpu", "cores", "memory_bytes", "kernel", "date"}) {
    EXPECT_NE(document.find("machine")->find(name), nullptr) << name;
  }
  const Json& first = document.find("rows")->get_if<Json::Array>()->front();
  for (const char* name : {"name", "value", "unit", "bound", "bound_name", "peer", "peer_name", "ratio_to_bound",
                           "ratio_to_peer", "bar", "bar_to", "met", "spread"}) {
    EXPECT_NE(first.find(name), nullptr) << name;
  }
  EXPECT_EQ(first.find("why"), nullptr);
}

TEST(BenchTable, ShowsRatesRatiosAndTheBar) {
  const std::string table = bench_table({row(0.96)});
  for (const char* part :
       {"read", "2.00", "0.95", "0.96 of bound, missed", "GB/s", "Bound: loop (read).", "Peer: fio (read)."}) {
    EXPECT_NE(table.find(part), std::string::npos) << part << " is not in\n" << table;
  }
}

TEST(Quantile, InterpolatesBetweenNeighbours) {
  EXPECT_DOUBLE_EQ(quantile({3.0}, 0.25), 3.0);
  EXPECT_DOUBLE_EQ(quantile({4.0, 1.0}, 0.5), 2.5);
  EXPECT_DOUBLE_EQ(quantile({5.0, 1.0, 3.0}, 1.0), 5.0);
}

}  // namespace
}  // namespace spillway::app::bench_report_test
