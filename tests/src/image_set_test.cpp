#include <spillway/app/data/image_set.hpp>

#include <array>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace spillway::app::image_set_test {
namespace {

using ::testing::ElementsAre;
using ::testing::ElementsAreArray;

/// Images of one row and two pixels that hold their own index.
ImageSet numbered(const std::vector<std::uint16_t>& labels) {
  ImageSet set{.width = 2, .height = 1, .labels = labels, .peak = 200};
  for (std::size_t i = 0; i < labels.size(); ++i) {
    set.pixels.insert(set.pixels.end(), 2, static_cast<std::uint8_t>(i));
  }
  return set;
}

TEST(ImageSet, ScalesPixelsByItsPeak) {
  const ImageSet set{.width = 2, .height = 1, .pixels = {0, 0, 100, 200}, .labels = {0, 0}, .peak = 200};
  std::array<float, 2> out{};
  set.copy_scaled(1, out);
  EXPECT_FLOAT_EQ(out[0], 0.5F);
  EXPECT_FLOAT_EQ(out[1], 1.0F);
}

TEST(ImageSet, CountsClassesByTheLargestLabel) {
  EXPECT_EQ(class_count({}), 0U);
  EXPECT_EQ(class_count(numbered({3, 0, 1})), 4U);
}

TEST(SplitByClass, TakesTheFirstOfEachClassToTrainOn) {
  const SplitImages split = split_by_class(numbered({0, 0, 1, 0, 1, 0, 0}), 0.6);
  EXPECT_THAT(split.train.labels, ElementsAre(0, 0, 1, 0));
  EXPECT_THAT(split.train.pixels, ElementsAre(0, 0, 1, 1, 2, 2, 3, 3));
  EXPECT_THAT(split.test.labels, ElementsAre(1, 0, 0));
  EXPECT_THAT(split.test.pixels, ElementsAre(4, 4, 5, 5, 6, 6));
  EXPECT_EQ(split.test.peak, 200);
  EXPECT_EQ(split.test.width, 2U);
}

TEST(SplitByClass, GivesEveryClassItsShareOfASortedSet) {
  std::vector<std::uint16_t> sorted;
  for (std::uint16_t label = 0; label < 10; ++label) {
    sorted.insert(sorted.end(), 500, label);
  }
  const SplitImages split = split_by_class(numbered(sorted), 0.8);
  for (std::uint16_t label = 0; label < 10; ++label) {
    EXPECT_EQ(std::ranges::count(split.train.labels, label), 400);
    EXPECT_EQ(std::ranges::count(split.test.labels, label), 100);
  }
}

}  // namespace
}  // namespace spillway::app::image_set_test
