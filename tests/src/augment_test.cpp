#include <spillway/app/data/augment.hpp>

#include <algorithm>
#include <cmath>
#include <numbers>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace spillway::app::augment_test {
namespace {

using ::testing::Each;
using ::testing::FloatNear;
using ::testing::Pointwise;

constexpr std::uint32_t kWidth = 5;
constexpr std::uint32_t kHeight = 5;

CounterRng any_rng() { return CounterRng({.seed = 1}); }

/// Values of all sizes, none of which another pixel has.
std::vector<float> ramp() {
  std::vector<float> image(kWidth * kHeight);
  for (std::size_t i = 0; i < image.size(); ++i) {
    image[i] = static_cast<float>(i) / static_cast<float>(image.size());
  }
  return image;
}

std::vector<float> applied(const std::vector<float>& image, const AugmentParameters& parameters) {
  std::vector<float> out(image.size());
  CounterRng rng = any_rng();
  apply_augmentation(image, out, kWidth, parameters, rng);
  return out;
}

std::vector<float> view(const std::vector<float>& image, const ViewName& name) {
  std::vector<float> out(image.size());
  augment(image, out, kWidth, AugmentConfig(), name);
  return out;
}

float at(const std::vector<float>& image, std::size_t row, std::size_t column) { return image[row * kWidth + column]; }

TEST(Augment, LeavesAnImageAsItIsAtTheIdentity) { EXPECT_EQ(applied(ramp(), {}), ramp()); }

TEST(Augment, LeavesAnImageAsItIsWhereTheConfigurationDrawsTheIdentity) {
  const AugmentConfig config{.rotation_degrees = 0,
                             .translate = 0,
                             .scale_min = 1,
                             .scale_max = 1,
                             .shear_degrees = 0,
                             .contrast = 0,
                             .brightness = 0,
                             .noise = 0};
  std::vector<float> out(ramp().size());
  augment(ramp(), out, kWidth, config, {});
  EXPECT_EQ(out, ramp());
}

TEST(Augment, CopiesWhereItIsDisabled) {
  std::vector<float> out(ramp().size());
  augment(ramp(), out, kWidth, {.enabled = false}, {});
  EXPECT_EQ(out, ramp());
}

TEST(Augment, TurnsCounterClockwise) {
  const std::vector<float> image = ramp();
  const std::vector<float> turned = applied(image, {.rotation = std::numbers::pi_v<float> / 2});
  for (std::size_t row = 0; row < kHeight; ++row) {
    for (std::size_t column = 0; column < kWidth; ++column) {
      EXPECT_NEAR(at(turned, kWidth - 1 - column, row), at(image, row, column), 1e-5) << row << ", " << column;
    }
  }
}

TEST(Augment, MovesRightAndDownAndFillsWithBlack) {
  const std::vector<float> image = ramp();
  const std::vector<float> moved = applied(image, {.translate_x = 1.0F / kWidth, .translate_y = 2.0F / kHeight});
  EXPECT_NEAR(at(moved, 2, 1), at(image, 0, 0), 1e-5);
  EXPECT_NEAR(at(moved, 4, 4), at(image, 2, 3), 1e-5);
  EXPECT_EQ(at(moved, 1, 3), 0.0F);
  EXPECT_EQ(at(moved, 4, 0), 0.0F);
}

TEST(Augment, EnlargesAroundTheCentre) {
  const std::vector<float> image = ramp();
  const std::vector<float> larger = applied(image, {.scale = 2.0F});
  EXPECT_NEAR(at(larger, 2, 2), at(image, 2, 2), 1e-6);
  EXPECT_NEAR(at(larger, 2, 4), at(image, 2, 3), 1e-6);
  EXPECT_NEAR(at(larger, 0, 2), at(image, 1, 2), 1e-6);
}

TEST(Augment, ShearsAlongTheRows) {
  const std::vector<float> image = ramp();
  const std::vector<float> sheared = applied(image, {.shear = std::numbers::pi_v<float> / 4});
  EXPECT_NEAR(at(sheared, 2, 1), at(image, 2, 1), 1e-5) << "the middle row stays";
  EXPECT_NEAR(at(sheared, 3, 3), at(image, 3, 2), 1e-5) << "the row below moves by one";
  EXPECT_NEAR(at(sheared, 1, 1), at(image, 1, 2), 1e-5);
}

TEST(Augment, ScalesAndShiftsIntensityWithinZeroAndOne) {
  const std::vector<float> image = ramp();
  const std::vector<float> changed = applied(image, {.contrast = 1.5F, .brightness = -0.2F});
  for (std::size_t i = 0; i < image.size(); ++i) {
    EXPECT_FLOAT_EQ(changed[i], std::clamp(1.5F * image[i] - 0.2F, 0.0F, 1.0F));
  }
}

TEST(Augment, AddsNoiseOfTheDeviationThatWasAskedFor) {
  const std::vector<float> grey(100 * kWidth, 0.5F);
  double squares = 0.0;
  for (const float value : applied(grey, {.noise = 0.05F})) {
    squares += (value - 0.5) * (value - 0.5);
  }
  // Five standard errors of a deviation from 500 values: 0.05 / sqrt(1000) each.
  EXPECT_NEAR(std::sqrt(squares / static_cast<double>(grey.size())), 0.05, 0.008);
}

TEST(Augment, AddsNoiseToAnOddNumberOfPixels) {
  EXPECT_THAT(applied(std::vector<float>(kWidth, 0.5F), {.noise = 0.05F}), Each(::testing::Ne(0.5F)));
}

TEST(Augment, GivesOnePictureForOneNameAndAnotherForAnyOther) {
  const ViewName name{.seed = 1, .epoch = 2, .sample = 3, .view = 0};
  const std::vector<float> image = ramp();
  const std::vector<float> first = view(image, name);
  // Another view in between must not matter: there is no hidden state.
  EXPECT_NE(view(image, {.seed = 1, .epoch = 2, .sample = 3, .view = 1}), first);
  EXPECT_NE(view(image, {.seed = 1, .epoch = 2, .sample = 4, .view = 0}), first);
  EXPECT_NE(view(image, {.seed = 1, .epoch = 3, .sample = 3, .view = 0}), first);
  EXPECT_NE(view(image, {.seed = 2, .epoch = 2, .sample = 3, .view = 0}), first);
  EXPECT_EQ(view(image, name), first);
}

TEST(Augment, KeepsEveryPixelBetweenZeroAndOne) {
  for (std::uint32_t sample = 0; sample < 200; ++sample) {
    EXPECT_THAT(view(ramp(), {.sample = sample}), Each(::testing::AllOf(::testing::Ge(0.0F), ::testing::Le(1.0F))));
  }
}

/// Smallest and largest of what a parameter was in many draws.
struct Extent {
  float low = 1e9F, high = -1e9F;
  void add(float value) {
    low = std::min(low, value);
    high = std::max(high, value);
  }
  /// Within the bounds, and close to both.
  void expect_fills(double lowest, double highest) const {
    const double slack = 0.02 * (highest - lowest);
    EXPECT_GE(low, lowest - 1e-6);
    EXPECT_LE(high, highest + 1e-6);
    EXPECT_LE(low, lowest + slack);
    EXPECT_GE(high, highest - slack);
  }
};

TEST(Augment, DrawsParametersThatFillTheirBoundsAndDoNotLeaveThem) {
  const AugmentConfig config;
  CounterRng rng = any_rng();
  Extent rotation, translate_x, translate_y, scale, shear, contrast, brightness, noise;
  for (int i = 0; i < 2000; ++i) {
    const AugmentParameters drawn = draw_augmentation(config, rng);
    rotation.add(drawn.rotation * 180.0F / std::numbers::pi_v<float>);
    translate_x.add(drawn.translate_x);
    translate_y.add(drawn.translate_y);
    scale.add(drawn.scale);
    shear.add(drawn.shear * 180.0F / std::numbers::pi_v<float>);
    contrast.add(drawn.contrast);
    brightness.add(drawn.brightness);
    noise.add(drawn.noise);
  }
  rotation.expect_fills(-config.rotation_degrees - 1e-4, config.rotation_degrees + 1e-4);
  translate_x.expect_fills(-config.translate, config.translate);
  translate_y.expect_fills(-config.translate, config.translate);
  scale.expect_fills(config.scale_min, config.scale_max);
  shear.expect_fills(-config.shear_degrees - 1e-4, config.shear_degrees + 1e-4);
  contrast.expect_fills(1.0 - config.contrast, 1.0 + config.contrast);
  brightness.expect_fills(-config.brightness, config.brightness);
  noise.expect_fills(0.0, config.noise);
}

}  // namespace
}  // namespace spillway::app::augment_test
