// Runs the tests of some files of a program: `offload_tests --in=budget_test.cpp,planner_test.cpp`, or all of them. As
// a child of its own tests it plays a role instead (support/child_role.hpp).
#include <algorithm>
#include <cstdlib>
#include <iostream>
#include <optional>
#include <ranges>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

#include "support/child_role.hpp"

namespace {

constexpr std::string_view kIn = "--in=";

bool is_listed(std::string_view path, std::string_view files) {
  const std::string_view name = path.substr(path.rfind('/') + 1);
  return std::ranges::any_of(std::views::split(files, ','),
                             [&](auto file) { return std::string_view(file.begin(), file.end()) == name; });
}

// A GoogleTest filter that names the tests of these files, empty if there are none.
std::string filter_of(std::string_view files) {
  std::string filter;
  const testing::UnitTest& all = *testing::UnitTest::GetInstance();
  for (int s = 0; s < all.total_test_suite_count(); ++s) {
    const testing::TestSuite& suite = *all.GetTestSuite(s);
    for (int t = 0; t < suite.total_test_count(); ++t) {
      const testing::TestInfo& test = *suite.GetTestInfo(t);
      if (!std::string_view(test.file()).ends_with("_test.cpp")) {
        std::cerr << test.file() << " holds a test; tests stand in files named *_test.cpp, by which ctest finds them\n";
        std::exit(2);
      }
      if (is_listed(test.file(), files)) filter += std::string(suite.name()) + "." + test.name() + ":";
    }
  }
  return filter;
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> words(argv, argv + argc);
  if (const std::optional<int> status = spillway::test::play_child_role(words)) {
    return *status;
  }
  testing::InitGoogleTest(&argc, argv);
  for (const std::string_view argument : std::span(argv, static_cast<std::size_t>(argc)).subspan(1)) {
    if (!argument.starts_with(kIn)) {
      std::cerr << "unknown argument " << argument << "; there is --in=FILE,FILE and what GoogleTest takes\n";
      return 2;
    }
    const std::string filter = filter_of(argument.substr(kIn.size()));
    if (filter.empty()) {
      std::cerr << "there is no test in " << argument.substr(kIn.size()) << "\n";
      return 2;
    }
    GTEST_FLAG_SET(filter, filter);
  }
  return RUN_ALL_TESTS();
}
