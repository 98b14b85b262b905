// Runs of the program on files of images, from outside.
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <spillway/app/bench/photo_files.hpp>
#include <spillway/app/data/jpeg_file.hpp>
#include <spillway/distributed/rendezvous.hpp>

#include "distributed/ranks.hpp"
#include "system/program.hpp"

namespace spillway::test::image_run_test {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;

/// Two classes of 15 small images each.
void write_images(const fs::path& folder) {
  for (std::uint32_t number = 0; number < 30; ++number) {
    const fs::path path = folder / "images" / (number % 2 == 0 ? "even" : "odd") / (std::to_string(number) + ".jpg");
    const std::vector<std::byte> bytes = app::encode_jpeg(app::make_photo(30, 24 + number % 3, number), 90);
    fs::create_directories(path.parent_path());
    write_text(path, {reinterpret_cast<const char*>(bytes.data()), bytes.size()});
  }
}

void damage(const fs::path& folder) { write_text(folder / "images" / "odd" / "7.jpg", "no image any more"); }

/// Steps of 8 images, 3 an epoch, of which the last has 6.
SpawnOptions on_images(const Workplace& place, const std::vector<std::string>& more = {}) {
  SpawnOptions options =
      place.in_memory({"--data", "images", "--set", "data.image_size=16", "--set", "train_batch_size=8", "--set",
                       "contrastive.batch_norm_groups=1", "--steps", "7", "--set", "gradient_accumulation_steps=1"});
  options.arguments.insert(options.arguments.end(), more.begin(), more.end());
  return options;
}

std::string weights(const Workplace& place) { return member<std::string>(place.summary(), "weights_xxh3"); }

std::string end_of(const Workplace& place, const std::vector<std::string>& more = {}) {
  const Outcome outcome = run(program(), on_images(place, more));
  EXPECT_EQ(outcome.exit_status, 0) << outcome.error;
  EXPECT_THAT(outcome.output, HasSubstr("24 images of 16 x 16 to train on"));
  return weights(place);
}

TEST(ImageRun, EndsAtTheSameWeightsWithAnyNumberOfWorkersAndAfterAResume) {
  const Workplace place;
  write_images(place / "");
  const std::string wanted = end_of(place);
  EXPECT_EQ(end_of(place, {"--set", "data.workers=0"}), wanted);
  EXPECT_EQ(end_of(place, {"--set", "data.workers=8", "--set", "data.prefetch=5", "--set", "checkpoint.every=4"}),
            wanted);
  fs::rename(place.run_folder() / "checkpoints" / "step_0000000004", place / "step_0000000004");
  EXPECT_EQ(end_of(place, {"--resume", place / "step_0000000004", "--set", "data.workers=1"}), wanted);
  EXPECT_NE(end_of(place, {"--set", "data.view.hue=0"}), wanted) << "the control";
}

/// How two ranks ended whose working folders these are.
std::vector<Outcome> on_two_ranks(const Workplace& place, const std::vector<fs::path>& folders) {
  distributed::RendezvousHost host;
  std::vector<std::unique_ptr<Child>> ranks;
  for (int rank = 0; rank < 2; ++rank) {
    SpawnOptions options = on_images(place);
    options.environment.merge(rank_options({}, rank, 2, host.port()).environment);
    options.working_directory = folders[static_cast<std::size_t>(rank)];
    ranks.push_back(std::make_unique<Child>(program(), options));
  }
  return {ranks[0]->wait(), ranks[1]->wait()};
}

TEST(ImageRun, LeavesADamagedFileOutOnBothRanksAndSaysSo) {
  const Workplace place;
  write_images(place / "");
  damage(place / "");
  const std::vector<Outcome> ended = on_two_ranks(place, {place / "", place / ""});
  EXPECT_EQ(ended[0].exit_status, 0) << ended[0].error;
  EXPECT_EQ(ended[1].exit_status, 0) << ended[1].error;
  EXPECT_THAT(ended[0].output, AllOf(HasSubstr("1 of 30 image files are damaged"), HasSubstr("odd/7.jpg"),
                                     HasSubstr("23 images of 16 x 16 to train on")));
}

TEST(ImageRun, IsRefusedWhereTheRanksSeeDifferentImages) {
  const Workplace place;
  write_images(place / "one");
  write_images(place / "two");
  damage(place / "two");
  const std::vector<Outcome> ended = on_two_ranks(place, {place / "one", place / "two"});
  for (const Outcome& outcome : ended) {
    EXPECT_EQ(outcome.exit_status, 1);
    EXPECT_THAT(outcome.error, AllOf(HasSubstr("the ranks have different images"), HasSubstr("rank 1 has 23 images")));
  }
}

}  // namespace
}  // namespace spillway::test::image_run_test
