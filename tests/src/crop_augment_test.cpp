#include <spillway/app/data/crop_augment.hpp>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <support/golden.hpp>

namespace spillway::app::crop_augment_test {
namespace {

constexpr std::uint32_t kDraws = 20000;
// Kolmogorov's bound at a level of 1e-6 for that many draws; the seed is fixed.
const double kBound = 2.7 / std::sqrt(static_cast<double>(kDraws));

const CropAugmentation kRecipe = crop_augmentation(ViewRecipe::kMocoV2, {}, 0, 224);

std::vector<CropParameters> draws(const CropAugmentation& recipe = kRecipe) {
  std::vector<CropParameters> drawn;
  for (std::uint32_t sample = 0; sample < kDraws; ++sample) {
    CounterRng rng({.seed = 5, .purpose = 1, .epoch = 2, .sample = sample});
    drawn.push_back(draw_crop(recipe, 500, 375, rng));
  }
  return drawn;
}

std::vector<double> sorted(const std::function<double(const CropParameters&)>& value) {
  std::vector<double> values;
  for (const CropParameters& drawn : draws()) values.push_back(value(drawn));
  std::ranges::sort(values);
  return values;
}

double share_below(const std::vector<double>& values, double limit) {
  return static_cast<double>(std::ranges::upper_bound(values, limit) - values.begin()) /
         static_cast<double>(values.size());
}

void expect_uniform(const std::vector<double>& values, double low, double high) {
  for (int tenth = 1; tenth < 10; ++tenth) {
    EXPECT_NEAR(share_below(values, low + (high - low) * tenth / 10.0), tenth / 10.0, kBound);
  }
  EXPECT_GE(values.front(), low - 1e-6);
  EXPECT_LE(values.back(), high + 1e-6);
}

void expect_share(const std::function<bool(const CropParameters&)>& happens, double probability) {
  const auto count = static_cast<double>(std::ranges::count_if(draws(), happens));
  EXPECT_NEAR(count / kDraws, probability, 5.0 * std::sqrt(probability * (1.0 - probability) / kDraws));
}

TEST(CropAugment, DrawsBoxesWithTorchvisionsDeciles) {
  const test::GoldenFile file = test::GoldenFile::open("21_augmentations");
  const std::map<std::string, std::function<double(const CropBox&)>> values = {
      {"area", [](const CropBox& box) { return box.width * box.height / (500.0 * 375.0); }},
      {"ratio", [](const CropBox& box) { return box.width / box.height; }},
      {"left", [](const CropBox& box) { return box.x; }},
      {"top", [](const CropBox& box) { return box.y; }}};
  for (const auto& [name, value] : values) {
    std::vector<double> deciles(9);
    std::memcpy(deciles.data(), file.at("decile_" + name).bytes.data(), 9 * sizeof(double));
    const std::vector<double> own = sorted([&](const CropParameters& drawn) { return value(drawn.box); });
    for (int tenth = 1; tenth < 10; ++tenth) {
      const double decile = deciles[static_cast<std::size_t>(tenth - 1)];
      // Places are whole numbers, of which many draws have the same: the decile lies in a step of the distribution.
      EXPECT_LE(share_below(own, std::nextafter(decile, -1.0)), tenth / 10.0 + kBound) << name;
      EXPECT_GE(share_below(own, decile), tenth / 10.0 - kBound) << name;
    }
  }
}

TEST(CropAugment, KeepsBoxesInsideOfTheImageWhateverItsShape) {
  for (const auto& [width, height] : {std::pair(1U, 1U), {20000U, 20U}, {3U, 700U}, {224U, 224U}}) {
    for (std::uint32_t sample = 0; sample < 200; ++sample) {
      CounterRng rng({.seed = 1, .sample = sample});
      const CropBox box = draw_crop(kRecipe, width, height, rng).box;
      EXPECT_GE(box.x, 0.0);
      EXPECT_GE(box.y, 0.0);
      EXPECT_GE(std::min(box.width, box.height), 1.0);
      EXPECT_LE(box.x + box.width, width);
      EXPECT_LE(box.y + box.height, height);
    }
  }
}

TEST(CropAugment, DrawsFactorsUniformly) {
  expect_uniform(sorted([](const CropParameters& drawn) { return drawn.brightness; }), 0.6, 1.4);
  expect_uniform(sorted([](const CropParameters& drawn) { return drawn.contrast; }), 0.6, 1.4);
  expect_uniform(sorted([](const CropParameters& drawn) { return drawn.saturation; }), 0.6, 1.4);
  expect_uniform(sorted([](const CropParameters& drawn) { return drawn.hue; }), -0.1, 0.1);
}

TEST(CropAugment, DrawsBlurOfHalfTheImagesWithUniformSigma) {
  std::vector<double> sigmas;
  for (const CropParameters& drawn : draws()) {
    if (drawn.blur_sigma > 0.0F) sigmas.push_back(drawn.blur_sigma);
  }
  std::ranges::sort(sigmas);
  EXPECT_NEAR(static_cast<double>(sigmas.size()) / kDraws, 0.5, 5.0 * std::sqrt(0.25 / kDraws));
  for (int tenth = 1; tenth < 10; ++tenth) {
    EXPECT_NEAR(share_below(sigmas, 0.1 + 1.9 * tenth / 10.0), tenth / 10.0, 1.5 * kBound);
  }
}

TEST(CropAugment, MakesEachChoiceWithItsProbability) {
  expect_share([](const CropParameters& drawn) { return drawn.flip; }, 0.5);
  expect_share([](const CropParameters& drawn) { return drawn.jitter; }, 0.8);
  expect_share([](const CropParameters& drawn) { return drawn.grayscale; }, 0.2);
  expect_share([](const CropParameters& drawn) { return drawn.solarize; }, 0.0);
}

TEST(CropAugment, TakesEveryOrderOfJitterAlikeOften) {
  std::map<std::array<JitterStep, 4>, int> counts;
  for (const CropParameters& drawn : draws()) ++counts[drawn.order];
  ASSERT_EQ(counts.size(), 24U);
  for (const auto& [order, count] : counts) EXPECT_NEAR(count, kDraws / 24.0, 5.0 * std::sqrt(kDraws / 24.0));
}

TEST(CropAugment, HasTheRecipesOfThePapers) {
  const CropAugmentation simclr = crop_augmentation(ViewRecipe::kSimClr, {}, 0, 224);
  EXPECT_EQ(simclr, CropAugmentation{});
  EXPECT_EQ(simclr.scale_min, 0.08);
  const CropAugmentation small = crop_augmentation(ViewRecipe::kSimClr, {}, 1, 32);
  EXPECT_EQ(small.hue, 0.1);
  EXPECT_EQ(small.blur, 0.0);
  EXPECT_EQ(kRecipe.scale_min, 0.2);
  EXPECT_EQ(kRecipe.hue, 0.1);
  EXPECT_EQ(crop_augmentation(ViewRecipe::kByol, {}, 0, 224).blur, 1.0);
  EXPECT_EQ(crop_augmentation(ViewRecipe::kByol, {}, 1, 224).solarize, 0.2);
}

TEST(CropAugment, TakesWhatTheConfigurationChanges) {
  ViewConfig changes;
  changes.crop_scale_min = 0.5;
  changes.solarize_probability = 1.0;
  const CropAugmentation changed = crop_augmentation(ViewRecipe::kMocoV2, changes, 0, 224);
  EXPECT_EQ(changed.scale_min, 0.5);
  EXPECT_EQ(changed.solarize, 1.0);
  EXPECT_EQ(changed.hue, kRecipe.hue);
}

TEST(CropAugment, LooksAtTheMiddleWhereNothingIsRandom) {
  const CropBox box = centre_crop(500, 400);
  EXPECT_EQ(box.width, 350.0);
  EXPECT_EQ(box.height, 350.0);
  EXPECT_EQ(box.x, 75.0);
  EXPECT_EQ(box.y, 25.0);
}

}  // namespace
}  // namespace spillway::app::crop_augment_test
