#include <spillway/app/data/view_data_reader.hpp>

#include <array>
#include <filesystem>
#include <set>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <spillway/app/data/dataset.hpp>
#include <spillway/app/data/epoch_order.hpp>
#include <spillway/app/data/jpeg_file.hpp>
#include <spillway/offload/checksum.hpp>
#include <spillway/offload/error.hpp>
#include <support/temp_dir.hpp>

#include "image_files.hpp"
#include "support/errors.hpp"

namespace spillway::app::view_data_reader_test {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

constexpr std::uint32_t kSamples = 23;
constexpr std::uint64_t kSeed = 7;
constexpr std::uint32_t kEpochs = 2;

/// A folder of 23 small files of one class and two sizes, as a set to train on.
class Files {
 public:
  Files() {
    for (std::uint32_t i = 0; i < kSamples; ++i) {
      Image image{24 + i % 2 * 9, 20, 3, {}};
      for (std::uint32_t at = 0; at < image.width * image.height; ++at) {
        const auto value = static_cast<std::uint8_t>(at * (i + 1) / 3);
        image.pixels.insert(image.pixels.end(), {value, static_cast<std::uint8_t>(255 - value), 40});
      }
      const std::vector<std::byte> bytes = encode_jpeg(image, 90);
      set.files.push_back(folder_ / (std::to_string(100 + i) + ".jpg"));
      set.labels.push_back(0);
      test::write_file(set.files.back(), {reinterpret_cast<const char*>(bytes.data()), bytes.size()});
    }
    set.width = set.height = 16;
    set.channels = 3;
  }
  ImageSet set;

 private:
  test::TempDir folder_;
};

struct Share {
  std::uint64_t rank = 0;
  std::uint64_t ranks = 1;
  std::uint64_t accumulation = 2;
};

/// The micro-batches of a rank, epoch after epoch.
ViewDataReader::Sequence sequence_of(const Share& share) {
  return [share](std::uint64_t index) -> std::optional<SampleBatch> {
    const BatchShape shape{.train_batch = 6, .accumulation = share.accumulation, .world_size = share.ranks};
    const std::uint64_t step = index / share.accumulation;
    const std::uint64_t steps = EpochOrder(kSamples, shape, kSeed, 0).steps();
    const auto epoch = static_cast<std::uint32_t>(step / steps);
    if (epoch >= kEpochs) return std::nullopt;
    const EpochOrder order(kSamples, shape, kSeed, epoch);
    const auto samples = order.micro_batch(step % steps, share.rank, index % share.accumulation);
    return SampleBatch{epoch, {samples.begin(), samples.end()}};
  };
}

std::uint64_t batches_of(const Share& share) {
  std::uint64_t count = 0;
  while (sequence_of(share)(count)) ++count;
  return count;
}

std::uint64_t hash(std::span<const float> values) { return offload::xxh3_64(std::as_bytes(values)); }

/// A hash of both views of every batch from `first` on.
std::vector<std::uint64_t> stream(const ViewMaker& views, const DataReaderOptions& options, std::uint64_t first = 0) {
  ViewDataReader reader(views, kSeed, sequence_of({}), options);
  std::vector<std::uint64_t> hashes;
  for (std::uint64_t index = first; index < batches_of({}); ++index) {
    const auto batch = reader.take(index);
    for (const std::size_t which : {0U, 1U}) hashes.push_back(hash(batch->view(which)));
  }
  return hashes;
}

TEST(ViewDataReader, MakesTheSameStreamWithAnyNumberOfWorkers) {
  const Files files;
  const ViewMaker views(files.set, {}, Method::kSimClr);
  const std::vector<std::uint64_t> wanted = stream(views, {.workers = 0, .prefetch = 1});
  EXPECT_EQ(std::set(wanted.begin(), wanted.end()).size(), wanted.size()) << "batches are not alike";
  for (const std::uint64_t workers : {1U, 2U, 8U}) {
    for (const std::uint64_t prefetch : {1U, 5U}) {
      EXPECT_EQ(stream(views, {.workers = workers, .prefetch = prefetch}), wanted) << workers << " " << prefetch;
    }
  }
}

TEST(ViewDataReader, GoesOnInTheMiddleAsIfItHadRunFromTheStart) {
  const Files files;
  const ViewMaker views(files.set, {}, Method::kMoco);
  const std::vector<std::uint64_t> wanted = stream(views, {});
  for (const std::uint64_t first : {1U, 5U, 9U}) {
    const std::vector<std::uint64_t> rest = stream(views, {.workers = 2, .prefetch = 3}, first);
    EXPECT_EQ(rest, std::vector(wanted.begin() + static_cast<std::ptrdiff_t>(2 * first), wanted.end()));
  }
}

TEST(ViewDataReader, GivesAnyBatchThatIsAskedFor) {
  const Files files;
  const ViewMaker views(files.set, {}, Method::kMoco);
  const std::vector<std::uint64_t> wanted = stream(views, {});
  ViewDataReader reader(views, kSeed, sequence_of({}), {.workers = 2, .prefetch = 4});
  for (const std::uint64_t index : {0U, 3U, 3U, 1U, 2U, 9U, 0U}) {
    EXPECT_EQ(hash(reader.take(index)->view(1)), wanted[2 * index + 1]) << index;
  }
}

/// Of every image of an epoch: its number of views and their bits, over all ranks.
std::multiset<std::pair<std::uint32_t, std::uint64_t>> union_of_ranks(const ViewMaker& views, std::uint64_t ranks) {
  std::multiset<std::pair<std::uint32_t, std::uint64_t>> all;
  for (std::uint64_t rank = 0; rank < ranks; ++rank) {
    const Share share{rank, ranks, 1};
    ViewDataReader reader(views, kSeed, sequence_of(share), {.workers = 2, .prefetch = 2});
    for (std::uint64_t index = 0; index < batches_of(share); ++index) {
      const SampleBatch batch = *sequence_of(share)(index);
      const auto read = reader.take(index);
      for (std::size_t row = 0; row < batch.samples.size(); ++row) {
        all.emplace(batch.samples[row], hash(read->row(0, row)) ^ hash(read->row(1, row)));
      }
    }
  }
  return all;
}

TEST(ViewDataReader, MakesTheSameViewsOnOneTwoThreeAndFourRanks) {
  const Files files;
  const ViewMaker views(files.set, {}, Method::kSimClr);
  const auto wanted = union_of_ranks(views, 1);
  EXPECT_EQ(wanted.size(), kSamples * kEpochs) << "every sample once an epoch";
  // Batches of 6, the last of 5: even shares on 2 and 3 ranks but for the last batch, uneven ones on 4.
  for (const std::uint64_t ranks : {2U, 3U, 4U}) EXPECT_EQ(union_of_ranks(views, ranks), wanted) << ranks;
}

TEST(ViewDataReader, KeepsNoMoreBatchesThanItIsAllowed) {
  const Files files;
  const ViewMaker views(files.set, {}, Method::kSimClr);
  for (const std::uint64_t prefetch : {1U, 3U}) {
    ViewDataReader reader(views, kSeed, sequence_of({}), {.workers = 4, .prefetch = prefetch});
    for (std::uint64_t index = 0; index < batches_of({}); ++index) (void)reader.take(index);
    EXPECT_LE(reader.stats().ahead_max, prefetch);
    EXPECT_EQ(reader.stats().batches, batches_of({}));
    EXPECT_EQ(reader.stats().samples, kSamples * kEpochs);
  }
}

TEST(ViewDataReader, CountsWhatItIsWaitedFor) {
  const Files files;
  const ViewMaker views(files.set, {}, Method::kSimClr);
  ViewDataReader reader(views, kSeed, sequence_of({}), {.workers = 1, .prefetch = 1});
  (void)reader.take(0);  // Nobody could have begun it.
  EXPECT_EQ(reader.stats().waits, 1U);
  EXPECT_GT(reader.stats().stall_ns, 0U);
  ViewDataReader alone(views, kSeed, sequence_of({}), {.workers = 0});
  (void)alone.take(0);
  (void)alone.take(1);
  EXPECT_EQ(alone.stats().waits, 2U);
}

TEST(ViewDataReader, SaysWhichFileOfABatchIsDamagedFirst) {
  const Files files;
  const SampleBatch batch = *sequence_of({})(1);
  for (const std::size_t place : {1U, 2U}) test::write_file(files.set.files[batch.samples[place]], "damaged");
  const ViewMaker views(files.set, {}, Method::kSimClr);
  ViewDataReader reader(views, kSeed, sequence_of({}), {.workers = 4, .prefetch = 3});
  (void)reader.take(0);
  EXPECT_THAT(message_of<FormatError>([&] { (void)reader.take(1); }),
              HasSubstr(files.set.files[batch.samples[1]].string()));
}

TEST(ViewDataReader, EndsWhileBatchesAreMade) {
  const Files files;
  const ViewMaker views(files.set, {}, Method::kSimClr);
  for (int i = 0; i < 20; ++i) {
    ViewDataReader reader(views, kSeed, sequence_of({}), {.workers = 3, .prefetch = 8});
    (void)reader.take(0);
  }
}

TEST(ViewMaker, TakesTheRecipeOfTheImagesAndTheMethod) {
  const Files files;
  EXPECT_EQ(ViewMaker(files.set, {}, Method::kMoco).recipe(), ViewRecipe::kMocoV2);
  EXPECT_EQ(ViewMaker(files.set, {}, Method::kSimSiam).recipe(), ViewRecipe::kSimClr);
  EXPECT_EQ(ViewMaker(files.set, {}, Method::kByol).recipe(), ViewRecipe::kByol);
  const ImageSet digits = make_synthetic({.images = 4, .classes = 2, .side = 8}, 0);
  EXPECT_EQ(ViewMaker(digits, {}, Method::kMoco).recipe(), ViewRecipe::kDigits);
  EXPECT_EQ(ViewMaker(digits, {.recipe = ViewRecipe::kMocoV2}, Method::kSimClr).recipe(), ViewRecipe::kMocoV2);
}

TEST(ViewMaker, MakesOneViewAloneAsBesideTheOther) {
  const Files files;
  const ViewMaker views(files.set, {}, Method::kSimClr);
  std::vector<float> first(files.set.image_numel());
  std::vector<float> second(files.set.image_numel());
  std::vector<float> alone(files.set.image_numel());
  const std::array both = {std::span(first), std::span(second)};
  const std::array one = {std::span(alone)};
  views.make({.seed = 1, .epoch = 2, .sample = 3}, both);
  views.make({.seed = 1, .epoch = 2, .sample = 3, .view = 1}, one);
  EXPECT_EQ(alone, second);
  EXPECT_NE(alone, first);
}

TEST(ViewMaker, GivesTheImageItselfWithoutAugmentation) {
  const Files files;
  DataConfig config;
  config.augment.enabled = false;
  const ViewMaker views(files.set, config, Method::kSimClr);
  std::vector<float> made(files.set.image_numel());
  std::vector<float> plain(files.set.image_numel());
  const std::array view = {std::span(made)};
  views.make({.sample = 3}, view);
  views.plain(3, plain);
  EXPECT_EQ(made, plain);
}

}  // namespace
}  // namespace spillway::app::view_data_reader_test
