#include <spillway/app/checkpoint/checkpoint_folder.hpp>

#include <sys/stat.h>

#include <fstream>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <spillway/offload/error.hpp>
#include <support/temp_dir.hpp>

#include "support/errors.hpp"

namespace spillway::app::checkpoint_folder_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

void write(const std::filesystem::path& root, std::uint64_t step, const std::string& content = "weights") {
  CheckpointWriter writer(root, step);
  DurableFile file(writer.folder() / "rank_0");
  file.write(content);
  Manifest manifest;
  manifest.step = step;
  manifest.files = {{"rank_0", file.finish()}};
  manifest.config = Json::Object{{"seed", std::uint64_t{3}}};
  manifest.progress = Json::Object{};
  writer.commit(manifest);
}

std::vector<std::string> names(const std::filesystem::path& root) {
  std::vector<std::string> names;
  for (const auto& path : list_checkpoints(root)) names.push_back(path.filename().string());
  return names;
}

std::string text_of(const std::filesystem::path& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

void overwrite(const std::filesystem::path& path, const std::string& text) { std::ofstream(path) << text; }

std::vector<std::string> skipped_until_newest(const std::filesystem::path& root, std::uint64_t& step) {
  std::vector<std::string> notes;
  const auto found = newest_checkpoint(root, [&](const std::string& note) { notes.push_back(note); });
  step = found ? found->manifest.step : 0;
  return notes;
}

TEST(CheckpointFolder, GivesBackWhatWasCommitted) {
  const test::TempDir folder;
  write(folder / "c", 7);
  const Manifest manifest = verify_checkpoint(folder / "c/step_0000000007");
  EXPECT_EQ(manifest.step, 7U);
  EXPECT_EQ(*manifest.config.find("seed")->get_if<std::uint64_t>(), 3U);
  EXPECT_EQ(manifest.files.at(0).digest.bytes, 7U);
  EXPECT_EQ(text_of(folder / "c/latest"), "step_0000000007\n");
}

TEST(CheckpointFolder, IsForItsOwnerAlone) {
  const test::TempDir folder;
  write(folder / "c", 7);
  struct stat status {};
  for (const char* path : {"c", "c/step_0000000007"}) {
    ASSERT_EQ(::stat((folder / path).c_str(), &status), 0);
    EXPECT_EQ(status.st_mode & 0777U, 0700U) << path;
  }
  ASSERT_EQ(::stat((folder / "c/step_0000000007/rank_0").c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777U, 0600U);
}

TEST(CheckpointFolder, LeavesNothingOfOneThatWasNotCommitted) {
  const test::TempDir folder;
  write(folder / "c", 1);
  {
    CheckpointWriter writer(folder / "c", 2);
    DurableFile file(writer.folder() / "rank_0");
    file.write("half");
  }
  EXPECT_THAT(names(folder / "c"), ElementsAre("step_0000000001"));
  EXPECT_FALSE(std::filesystem::exists(folder / "c/step_0000000002.partial"));
}

TEST(CheckpointFolder, WritesOverOneOfTheSameStep) {
  const test::TempDir folder;
  write(folder / "c", 1, "old");
  overwrite(folder / "c/step_0000000001/rank_0", "bad");
  write(folder / "c", 1, "newer");
  EXPECT_EQ(verify_checkpoint(folder / "c/step_0000000001").files.at(0).digest.bytes, 5U);
  EXPECT_THAT(names(folder / "c"), ElementsAre("step_0000000001"));
}

TEST(CheckpointFolder, RefusesWhatIsNotItsOwn) {
  const auto damage = [](const std::function<void(const std::filesystem::path&)>& how) {
    const test::TempDir folder;
    write(folder / "c", 1);
    how(folder / "c/step_0000000001");
    return message_of<Error>([&] { (void)verify_checkpoint(folder / "c/step_0000000001"); });
  };
  using Path = std::filesystem::path;
  EXPECT_THAT(damage([](const Path& path) { std::filesystem::remove(path / "rank_0"); }), HasSubstr("rank_0"));
  EXPECT_THAT(damage([](const Path& path) { std::filesystem::remove(path / "manifest.json"); }), HasSubstr("manifest"));
  EXPECT_THAT(damage([](const Path& path) {
                std::filesystem::remove(path / "manifest.json");
                write(path / "other", 2);
                std::filesystem::copy(path / "other/step_0000000002/manifest.json", path / "manifest.json");
              }),
              HasSubstr("after 2 steps"));
  EXPECT_THAT(damage([](const Path& path) {
                std::filesystem::rename(path / "rank_0", path / "there");
                std::filesystem::create_symlink("there", path / "rank_0");
              }),
              HasSubstr("rank_0"))
      << "a link was followed";
  EXPECT_THAT(damage([](const Path& path) {
                std::filesystem::rename(path / "manifest.json", path / "there");
                std::filesystem::create_symlink("there", path / "manifest.json");
              }),
              HasSubstr("manifest.json"))
      << "a link was followed";
}

TEST(CheckpointFolder, TakesTheNewestWholeOneAndSaysWhichItSkipped) {
  const test::TempDir folder;
  std::uint64_t step = 0;
  EXPECT_THAT(skipped_until_newest(folder / "c", step), IsEmpty());
  EXPECT_EQ(step, 0U);
  for (const std::uint64_t written : {9, 10, 11}) write(folder / "c", written);
  EXPECT_THAT(skipped_until_newest(folder / "c", step), IsEmpty());
  EXPECT_EQ(step, 11U);
  overwrite(folder / "c/step_0000000011/rank_0", "weightz");
  EXPECT_THAT(skipped_until_newest(folder / "c", step), ElementsAre(HasSubstr("step_0000000011/rank_0")));
  EXPECT_EQ(step, 10U);
}

TEST(CheckpointFolder, KeepsTheNewestAndThoseOfRoundSteps) {
  const test::TempDir folder;
  for (const std::uint64_t step : {100, 150, 200, 250, 300}) write(folder / "c", step);
  std::filesystem::create_directory(folder / "c/step_0000000350.partial");  // Of a run that was killed.
  remove_old_checkpoints(folder / "c", 300, 2, 100);
  EXPECT_THAT(names(folder / "c"),
              ElementsAre("step_0000000300", "step_0000000250", "step_0000000200", "step_0000000100"));
  remove_old_checkpoints(folder / "c", 300, 1, 0);
  EXPECT_THAT(names(folder / "c"), ElementsAre("step_0000000300"));
  EXPECT_FALSE(std::filesystem::exists(folder / "c/step_0000000350.partial"));
}

// A damaged one that the run passed over is no reason to remove a whole one.
TEST(CheckpointFolder, NeitherCountsNorRemovesLaterOnes) {
  const test::TempDir folder;
  for (const std::uint64_t step : {1, 2, 3, 8, 9}) write(folder / "c", step);
  remove_old_checkpoints(folder / "c", 3, 2, 0);
  EXPECT_THAT(names(folder / "c"),
              ElementsAre("step_0000000009", "step_0000000008", "step_0000000003", "step_0000000002"));
}

TEST(DurableFile, DigestsWhatItWroteWhateverThePieces) {
  const test::TempDir folder;
  const std::string text(3'000'001, 'x');
  DurableFile whole(folder / "whole");
  whole.write(text);
  DurableFile pieces(folder / "pieces");
  for (std::size_t at = 0; at < text.size(); at += 70'001) pieces.write(std::string_view(text).substr(at, 70'001));
  const FileDigest digest = whole.finish();
  EXPECT_EQ(digest.bytes, text.size());
  EXPECT_EQ(pieces.finish(), digest);
  EXPECT_EQ(find_damage(folder / "whole", digest), std::nullopt);
  EXPECT_THAT(message_of<IoError>([&] { DurableFile again(folder / "whole"); }), HasSubstr("whole"));
}

}  // namespace
}  // namespace spillway::app::checkpoint_folder_test
