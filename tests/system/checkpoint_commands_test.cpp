// What looks into checkpoints, from outside.
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "system/program.hpp"

namespace spillway::test::checkpoint_commands_test {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

/// A run of four steps with a checkpoint after every second one, which all tests look into.
const Workplace& finished_run() {
  static const Workplace place;
  static const Outcome outcome = run(program(), place.on_disk({"--steps", "4", "--set", "checkpoint.every=2"}));
  EXPECT_EQ(outcome.exit_status, 0) << outcome.error;
  return place;
}

/// A copy of it for one test.
class CheckpointCommands : public ::testing::Test {
 protected:
  CheckpointCommands() { fs::copy(finished_run().run_folder(), run_folder_, fs::copy_options::recursive); }

  static Outcome spillway(const std::vector<std::string>& arguments) {
    return run(program(), {.arguments = arguments, .environment = {{"OMP_NUM_THREADS", "1"}}});
  }

  TempDir folder_;
  fs::path run_folder_ = folder_ / "run";
  fs::path newest_ = run_folder_ / "checkpoints/step_0000000004";
};

/// Changes a byte of the values of a tensor that is in the middle of the file.
void damage(const fs::path& path) {
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  const auto at = static_cast<std::streamoff>(fs::file_size(path) / 2);
  file.seekg(at);
  const int byte = file.get();
  file.seekp(at);
  file.put(static_cast<char>(byte ^ 1));
}

TEST_F(CheckpointCommands, InspectSaysWhatIsInTheNewest) {
  const Outcome lines = spillway({"inspect", run_folder_});
  EXPECT_EQ(lines.exit_status, 0) << lines.error;
  EXPECT_THAT(lines.output, AllOf(HasSubstr("step_0000000004: after 4 steps, of 1 rank"), HasSubstr("optimizer"),
                                  HasSubstr("bank"), Not(HasSubstr("encoder.conv"))));
  EXPECT_THAT(spillway({"inspect", run_folder_, "--tensors"}).output, HasSubstr("bank.values  F16 [512, 64]"));
  const Outcome json = spillway({"inspect", run_folder_ / "checkpoints/step_0000000002", "--json"});
  EXPECT_EQ(member<std::uint64_t>(app::parse_json(json.output, "inspect"), "step"), 2U);
  EXPECT_EQ(spillway({"inspect", folder_.path()}).exit_status, 1);
}

TEST_F(CheckpointCommands, VerifyNamesTheFileAndTheTensorThatIsDamaged) {
  const Outcome whole = spillway({"verify", run_folder_});
  EXPECT_EQ(whole.exit_status, 0) << whole.output << whole.error;
  EXPECT_THAT(whole.output, AllOf(HasSubstr("step_0000000004: whole"), HasSubstr("step_0000000002: whole")));
  damage(newest_ / "rank_0.safetensors");
  const Outcome damaged = spillway({"verify", run_folder_});
  EXPECT_EQ(damaged.exit_status, 1);
  EXPECT_THAT(damaged.output,
              AllOf(HasSubstr("step_0000000004: damaged"), HasSubstr("rank_0.safetensors: the bytes of"),
                    HasSubstr("step_0000000002: whole")));
  EXPECT_EQ(spillway({"verify", run_folder_ / "checkpoints/step_0000000002"}).exit_status, 0);
  EXPECT_EQ(spillway({"verify", folder_.path()}).exit_status, 1) << "there is none";
}

TEST_F(CheckpointCommands, ExportWritesWeightsAloneAndNothingOverAnything) {
  const fs::path out = folder_ / "weights.safetensors";
  const std::vector<std::string> command = {"export", run_folder_, "--format", "safetensors", "--out", out};
  const Outcome outcome = spillway(command);
  EXPECT_EQ(outcome.exit_status, 0) << outcome.error;
  EXPECT_GT(fs::file_size(out), 10'000U);
  EXPECT_LT(fs::file_size(out), fs::file_size(newest_ / "rank_0.safetensors") / 2);
  EXPECT_THAT(read_text(out), AllOf(HasSubstr("\"encoder."), Not(HasSubstr("\"optimizer.")),
                                    Not(HasSubstr("\"momentum_encoder.")), Not(HasSubstr("\"bank."))));
  EXPECT_EQ(spillway(command).exit_status, 1) << "it is there already";
  damage(newest_ / "rank_0.safetensors");
  const Outcome older = spillway({"export", run_folder_, "--format", "torch", "--out", folder_ / "weights.pt"});
  EXPECT_THAT(older.error, HasSubstr("skipped a checkpoint"));
  EXPECT_THAT(older.output, HasSubstr("step_0000000002"));
}

/// The Python that SPILLWAY_PYTHON names, or the system's.
Outcome python(const std::string& code, const fs::path& argument) {
  const char* const named = std::getenv("SPILLWAY_PYTHON");
  return run(named != nullptr ? named : "/usr/bin/python3", {.arguments = {"-c", code, argument}});
}

TEST_F(CheckpointCommands, TheFilesAreReadByThePackageOfTheFormat) {
  if (std::getenv("SPILLWAY_PYTHON") == nullptr && !fs::exists("/usr/bin/python3")) GTEST_SKIP() << "no Python";
  if (python("import safetensors", "").exit_status != 0) {
    GTEST_SKIP() << "Python has no safetensors; SPILLWAY_PYTHON names one that has";
  }
  const fs::path out = folder_ / "weights.safetensors";
  ASSERT_EQ(spillway({"export", run_folder_, "--format", "safetensors", "--out", out}).exit_status, 0);
  for (const fs::path& path : {out, newest_ / "rank_0.safetensors"}) {
    const Outcome read = python(R"(
import sys, safetensors
tensors = safetensors.deserialize(open(sys.argv[1], "rb").read())
print(len(tensors), sum(len(tensor["data"]) for name, tensor in tensors)))",
                                path);
    EXPECT_EQ(read.exit_status, 0) << read.error;
    EXPECT_GT(std::stoul(read.output), 10U);
  }
  damage(out);
  fs::resize_file(out, fs::file_size(out) - 1);
  EXPECT_NE(python("import sys, safetensors; safetensors.deserialize(open(sys.argv[1], 'rb').read())", out).exit_status,
            0)
      << "the control";
}

}  // namespace
}  // namespace spillway::test::checkpoint_commands_test
