// Seen from outside the process: the memory that it really takes, and what it leaves behind when it is killed.
#include <gtest/gtest.h>

#include <csignal>
#include <filesystem>
#include <sstream>
#include <string>

#include "support/child_role.hpp"
#include "support/spawn.hpp"
#include "support/temp_dir.hpp"

namespace spillway::test::process_test {
namespace {

constexpr std::uint64_t kMiB = 1 << 20;
constexpr std::uint64_t kBudget = 32 * kMiB;  // A quarter of the state.
constexpr std::uint64_t kAllowance = 64 * kMiB;

struct Peak {
  std::uint64_t peak_bytes = 0;
  std::uint64_t state_bytes = 0;
  std::uint64_t disk_bytes = 0;
};

Peak peak_of(const std::string& kind, const std::string& device, std::uint64_t host_bytes) {
  const TempDir folder("peak");
  const Outcome outcome = run(
      this_program(),
      {.arguments = as_child("training", {"peak", kind, device, folder.path().string(), std::to_string(host_bytes)})});
  EXPECT_EQ(outcome.exit_status, 0) << outcome.error;
  Peak peak;
  std::istringstream words(outcome.output);
  std::string name;
  words >> name >> peak.peak_bytes >> name >> peak.state_bytes >> name >> peak.disk_bytes;
  EXPECT_TRUE(static_cast<bool>(words)) << outcome.output;
  return peak;
}

TEST(PeakMemory, StaysWithinTheBudgetWithFourTimesAsMuchState) {
  const Peak stateless = peak_of("sgd", "cpu", kBudget);
  EXPECT_EQ(stateless.state_bytes, 0U);
  const Peak streamed = peak_of("adamw", "nvme", kBudget);
  EXPECT_EQ(streamed.state_bytes, 4 * kBudget);
  EXPECT_GT(streamed.disk_bytes, 3 * kBudget);
  EXPECT_LE(streamed.peak_bytes, stateless.peak_bytes + kBudget + kAllowance);
  std::printf("[  peaks   ] MiB: without state %llu, streamed %llu\n",
              static_cast<unsigned long long>(stateless.peak_bytes / kMiB),
              static_cast<unsigned long long>(streamed.peak_bytes / kMiB));
}

TEST(PeakMemory, OfStateInMemoryFailsTheSameCheck) {
  const Peak stateless = peak_of("sgd", "cpu", kBudget);
  const Peak in_memory = peak_of("adamw", "none", kBudget);
  EXPECT_GT(in_memory.peak_bytes, stateless.peak_bytes + kBudget + kAllowance);
}

TEST(AKilledRun, LeavesNoFileBehind) {
  const TempDir folder("killed");
  bool in_the_middle = false;
  for (int attempt = 0; attempt < 10 && !in_the_middle; ++attempt) {
    Child child(this_program(), {.arguments = as_child("training", {"forever", folder.path().string()})});
    child.wait_for_output("begin 3\n");
    EXPECT_TRUE(std::filesystem::is_empty(folder.path())) << "its swap file has a name";
    child.signal(SIGKILL);
    const Outcome outcome = child.wait();
    ASSERT_EQ(outcome.exit_status, 128 + SIGKILL) << outcome.error;
    EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
    // The last line says whether the signal met it inside a step.
    in_the_middle = outcome.output.rfind("begin") > outcome.output.rfind("end");
  }
  EXPECT_TRUE(in_the_middle) << "ten kills all fell between two steps";
}

}  // namespace
}  // namespace spillway::test::process_test
