// A process that writes one checkpoint after another and is killed at random instants, as fast as it can be started.
#include <sys/time.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <string>

#include <gtest/gtest.h>

#include "storage/saved_steps.hpp"
#include "support/child_role.hpp"
#include "support/property.hpp"
#include "support/spawn.hpp"
#include "support/temp_dir.hpp"

namespace spillway::test::storage_kill_test {
namespace {

namespace fs = std::filesystem;

void kill_this(int /*signal*/) { static_cast<void>(::kill(::getpid(), SIGKILL)); }

/// Resumes in a folder, saves on and on, and says what is saved, until it kills itself after so many microseconds.
/// Arguments: folder, microseconds, aside or in_place.
int save_until_killed(ChildRole::Arguments arguments) {
  const fs::path root = arguments[0];
  std::signal(SIGALRM, kill_this);
  const itimerval after = {.it_interval = {}, .it_value = {.tv_sec = 0, .tv_usec = std::stol(arguments[1])}};
  const ResumedStep resumed = resume_step(root);
  ::setitimer(ITIMER_REAL, &after, nullptr);
  for (std::uint64_t step = resumed.step + 1; step < 1'000'000; ++step) {
    if (arguments[2] == "aside") {
      save_step(root, step);
    } else {
      save_step_in_place(root, step);
    }
    std::cout << "saved " << step << "\n" << std::flush;
  }
  return 1;
}
const ChildRole kSaves("saves", save_until_killed);

std::uint64_t last_saved(const std::string& output, std::uint64_t before) {
  const std::size_t at = output.rfind("saved ");
  return at == output.npos ? before : std::stoull(output.substr(at + 6));
}

struct Tally {
  std::uint64_t kills = 0;
  std::uint64_t torn = 0;       ///< Half a checkpoint was visible.
  std::uint64_t backwards = 0;  ///< One that was said to be saved was gone.
  std::uint64_t wrong = 0;      ///< Other bytes verified.
  std::uint64_t steps = 0;      ///< Saved in all.
};

Tally kill_many(std::uint64_t kills, const std::string& how) {
  const TempDir folder;
  const fs::path root = folder / "checkpoints";
  fs::create_directory(root);
  Random random(5);
  Tally tally;
  std::uint64_t saved = 0;
  for (; tally.kills < kills; ++tally.kills) {
    const std::string delay = std::to_string(random.between(50, 6000));
    const auto outcome = run(this_program(), {.arguments = as_child("saves", {root, delay, how})});
    EXPECT_EQ(outcome.exit_status, 128 + SIGKILL) << outcome.error;
    saved = last_saved(outcome.output, saved);
    const ResumedStep resumed = resume_step(root);
    if (!resumed.skipped.empty()) ++tally.torn;
    if (resumed.step < saved) ++tally.backwards;
    if (!resumed.wrong.empty()) ++tally.wrong;
    saved = resumed.step;
    if (how != "aside" && !resumed.skipped.empty()) {  // A writer in place can't write what is there.
      fs::remove_all(root);
      fs::create_directory(root);
      saved = 0;
    }
    tally.steps = std::max(tally.steps, saved);
  }
  return tally;
}

/// SPILLWAY_KILLS sets another number.
std::uint64_t kills() {
  const char* const wanted = std::getenv("SPILLWAY_KILLS");
  return wanted == nullptr ? 300 : std::stoull(wanted);
}

TEST(StorageKill, NeverLeavesHalfACheckpointNorLosesOne) {
  const Tally tally = kill_many(kills(), "aside");
  std::cout << tally.kills << " kills, " << tally.steps << " steps saved: torn " << tally.torn << ", backwards "
            << tally.backwards << ", wrong " << tally.wrong << "\n";
  EXPECT_EQ(tally.torn + tally.backwards + tally.wrong, 0U);
  EXPECT_GT(tally.steps, tally.kills / 10) << "it gets nowhere between two kills";
}

TEST(StorageKill, TearsCheckpointsThatAreWrittenInPlace) { EXPECT_GT(kill_many(40, "in_place").torn, 0U); }

}  // namespace
}  // namespace spillway::test::storage_kill_test
