#include <cstdlib>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <spillway/app/data/dataset.hpp>

namespace spillway::app::synthetic_test {
namespace {

constexpr SyntheticConfig kSmall{.images = 30, .classes = 3, .side = 8};

/// Sum of the absolute differences of two images' pixels.
int distance(const ImageSet& set, std::uint32_t a, std::uint32_t b) {
  int sum = 0;
  for (std::uint32_t i = 0; i < set.image_numel(); ++i) {
    sum += std::abs(set.image(a)[i] - set.image(b)[i]);
  }
  return sum;
}

TEST(Synthetic, MakesClassesOfEqualSize) {
  const ImageSet set = make_synthetic(kSmall, 1);
  EXPECT_EQ(set.size(), 30U);
  EXPECT_EQ(set.pixels.size(), 30U * 64U);
  for (std::uint16_t label = 0; label < 3; ++label) {
    EXPECT_EQ(std::ranges::count(set.labels, label), 10);
  }
}

TEST(Synthetic, IsAFunctionOfItsSeed) {
  EXPECT_EQ(make_synthetic(kSmall, 1), make_synthetic(kSmall, 1));
  EXPECT_NE(make_synthetic(kSmall, 1), make_synthetic(kSmall, 2));
}

TEST(Synthetic, VariesTheImagesOfAClassLessThanTheClasses) {
  const ImageSet set = make_synthetic({.images = 60, .classes = 6, .side = 16}, 1);
  double within = 0.0;
  double between = 0.0;
  for (std::uint32_t label = 0; label < 5; ++label) {
    for (std::uint32_t i = 0; i < 9; ++i) {
      const std::uint32_t image = label * 10 + i;
      ASSERT_GT(distance(set, image, image + 1), 0) << "two equal images";
      within += distance(set, image, image + 1);
      between += distance(set, image, image + 10);
    }
  }
  EXPECT_LT(within, 0.7 * between);
}

}  // namespace
}  // namespace spillway::app::synthetic_test
