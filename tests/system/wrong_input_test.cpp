// What a user can get wrong: each time one line on standard error, the right exit status, and nothing left behind.
#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <spillway/distributed/rendezvous.hpp>
#include <support/tiny_disk.hpp>

#include "distributed/ranks.hpp"
#include "system/program.hpp"

namespace spillway::test::wrong_input_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr int kRefused = 1;
constexpr int kUsage = 2;

/// Runs what has to fail; its one line.
std::string refusal(const SpawnOptions& options, int status) {
  const Outcome outcome = run(program(), options);
  EXPECT_EQ(outcome.exit_status, status) << outcome.error;
  EXPECT_EQ(std::ranges::count(outcome.error, '\n'), 1) << outcome.error;
  EXPECT_TRUE(outcome.error.starts_with("spillway")) << outcome.error;
  return outcome.error;
}

TEST(WrongInput, ASwapFolderThatIsMissing) {
  Workplace place;
  place.swap_to(place / "nowhere");
  EXPECT_THAT(refusal(place.on_disk(), kRefused), HasSubstr(place.swap()));
  EXPECT_FALSE(std::filesystem::exists(place.swap()));
}

TEST(WrongInput, ASwapFolderThatIsAFile) {
  Workplace place;
  place.swap_to(place / "config.json");
  EXPECT_THAT(refusal(place.on_disk(), kRefused), HasSubstr(place.swap()));
}

TEST(WrongInput, ASwapFolderWithoutSpace) {
  if (const auto reason = TinyDisk::unavailable(TinyDiskKind::Tmpfs)) GTEST_SKIP() << *reason;
  const TinyDisk disk(TinyDiskKind::Tmpfs, 256 << 10);
  Workplace place;
  place.swap_to(disk.path());
  EXPECT_THAT(refusal(place.on_disk(), kRefused), AllOf(HasSubstr(disk.path()), HasSubstr("space")));
  EXPECT_THAT(names_in(disk.path()), IsEmpty());
}

TEST(WrongInput, ABudgetThatHoldsNotEvenTheStagingBuffers) {
  const Workplace place;
  EXPECT_THAT(refusal(place.on_disk({"--host-budget", "260KiB"}), kRefused), HasSubstr("optimizer state"));
  EXPECT_THAT(names_in(place.swap()), IsEmpty());
}

TEST(WrongInput, AnEngineThatThereIsNot) {
  const Workplace place;
  EXPECT_THAT(refusal(place.on_disk({"--set", "aio.engine=posix"}), kUsage), HasSubstr("aio.engine"));
}

TEST(WrongInput, AnUnknownKeyInABlockOfOurs) {
  const Workplace place;
  EXPECT_THAT(refusal(place.on_disk({"--set", "contrastive.temprature=0.1"}), kUsage),
              AllOf(HasSubstr("contrastive.temprature"), HasSubstr("temperature")));
  EXPECT_FALSE(std::filesystem::exists(place.run_folder()));
}

TEST(WrongInput, AnUnknownKeyOfDeepSpeedsOnlyWhereThatIsStrict) {
  const Workplace place;
  const std::vector<std::string> misspelt = {"--set", "zero_optimization.overlap_com=true", "--steps", "1"};
  EXPECT_EQ(run(program(), place.in_memory(misspelt)).exit_status, 0);
  std::vector<std::string> strict = misspelt;
  strict.emplace_back("--strict");
  EXPECT_THAT(refusal(place.in_memory(strict), kUsage), HasSubstr("overlap_comm"));
}

TEST(WrongInput, AnUnknownFlag) {
  const Workplace place;
  EXPECT_THAT(refusal(place.on_disk({"--offload-everything"}), kUsage), HasSubstr("--offload-everything"));
}

TEST(WrongInput, BatchSizesThatContradictOneAnother) {
  const Workplace place;
  EXPECT_THAT(refusal(place.on_disk({"--set", "train_micro_batch_size_per_gpu=100"}), kUsage),
              HasSubstr("train_batch_size"));
}

TEST(WrongInput, AConfigurationThatIsMissingOrNoJson) {
  const Workplace place;
  EXPECT_THAT(refusal({.arguments = {"train", "--config", place / "absent.json"}}, kRefused), HasSubstr("absent.json"));
  write_text(place / "broken.json", "{\"seed\": 1,");
  EXPECT_THAT(refusal({.arguments = {"train", "--config", place / "broken.json"}}, kUsage), HasSubstr("broken.json"));
}

TEST(WrongInput, DataThatIsMissing) {
  const Workplace place;
  EXPECT_THAT(refusal(place.on_disk({"--data", place / "absent.csv"}), kRefused), HasSubstr("absent.csv"));
  EXPECT_THAT(names_in(place.swap()), IsEmpty());
}

TEST(WrongInput, ACsvFileThatIsCutOff) {
  const Workplace place;
  write_text(place / "images.csv", "0,1,2,3,0\n4,5,6,7,1\n8,9,1");
  EXPECT_THAT(refusal(place.on_disk({"--data", place / "images.csv"}), kRefused),
              AllOf(HasSubstr("images.csv"), HasSubstr("line 3")));
  EXPECT_THAT(names_in(place.swap()), IsEmpty());
}

TEST(WrongInput, APackedFileThatIsCutOff) {
  const Workplace place;
  const std::string whole = read_text(SPILLWAY_DIGITS);
  write_text(place / "digits.csv.gz", whole.substr(0, whole.size() / 2));
  EXPECT_THAT(refusal(place.on_disk({"--data", place / "digits.csv.gz"}), kRefused), HasSubstr("digits.csv.gz"));
}

TEST(WrongInput, AnIdxFileThatIsCutOff) {
  const Workplace place;
  using std::string_literals::operator""s;
  // Three images of 2 x 2 pixels are announced, two and a half are there.
  write_text(place / "train-images-idx3-ubyte", "\0\0\x08\x03\0\0\0\x03\0\0\0\x02\0\0\0\x02"s + "0123456789");
  write_text(place / "train-labels-idx1-ubyte", "\0\0\x08\x01\0\0\0\x03"s + "\0\x01\0"s);
  EXPECT_THAT(refusal(place.on_disk({"--data", place / "train-images-idx3-ubyte"}), kRefused),
              HasSubstr("train-images-idx3-ubyte"));
  EXPECT_THAT(names_in(place.swap()), IsEmpty());
}

TEST(WrongInput, ARunFolderThatCannotBeMade) {
  const Workplace place;
  SpawnOptions options = {.arguments = {"train", "--data", "digits", "--out", place / "config.json" / "run"}};
  EXPECT_THAT(refusal(options, kRefused), HasSubstr("config.json/run"));
}

TEST(WrongInput, AFolderWithoutACheckpoint) {
  const Workplace place;
  const std::string folder = place.swap().string();
  EXPECT_THAT(refusal({.arguments = {"eval", folder}}, kRefused), AllOf(HasSubstr(folder), HasSubstr("no whole")));
}

TEST(WrongInput, ALauncherWhoseOtherRankNeverComes) {
  const Workplace place;
  SpawnOptions options = place.on_disk({"--set", "ranks.timeout_s=1"});
  const distributed::RendezvousHost host;
  options.environment.merge(rank_options({}, 0, 2, host.port()).environment);
  EXPECT_THAT(refusal(options, kRefused), AllOf(HasSubstr("rank 1 did not arrive"), HasSubstr("1000 ms")));
  EXPECT_FALSE(std::filesystem::exists(place.run_folder()));
}

TEST(WrongInput, WhatThisVersionDoesNotHave) {
  const Workplace place;
  EXPECT_THAT(refusal({.arguments = {"bench", "io", "--report", "x.html"}}, kUsage),
              AllOf(HasSubstr("--report"), HasSubstr("not in this version")));
}

}  // namespace
}  // namespace spillway::test::wrong_input_test
