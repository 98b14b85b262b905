#include <spillway/app/data/image_ops.hpp>

#include <algorithm>
#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <spillway/app/data/crop_augment.hpp>
#include <support/golden.hpp>

namespace spillway::app::image_ops_test {
namespace {

using test::GoldenFile;
using test::GoldenTensor;

constexpr std::uint32_t kSide = 24;
constexpr int kTolerance = 2;  // Of 255: the golden values are rounded to it.

const GoldenFile& golden() {
  static const GoldenFile file = GoldenFile::open("21_augmentations");
  return file;
}

std::vector<std::uint8_t> bytes_of(const GoldenTensor& tensor) {
  const auto* const begin = reinterpret_cast<const std::uint8_t*>(tensor.bytes.data());
  return {begin, begin + tensor.bytes.size()};
}

Image source() {
  const GoldenTensor& stored = golden().at("image");
  return {static_cast<std::uint32_t>(stored.shape[1]), static_cast<std::uint32_t>(stored.shape[0]), 3,
          bytes_of(stored)};
}

struct Canvas {
  std::vector<float> values = std::vector<float>(std::size_t{3} * kSide * kSide);
  [[nodiscard]] Planes planes() { return {values, kSide, kSide, 3}; }
};

Canvas cropped(const CropBox& box) {
  Canvas canvas;
  resized_crop(source(), box, canvas.planes());
  return canvas;
}

Canvas start() { return cropped({7, 5, 30, 33}); }

/// The largest difference from torchvision's pixels, of 255.
int difference(const Canvas& made, const std::string& name) {
  const std::vector<std::uint8_t> wanted = bytes_of(golden().at(name));
  int largest = 0;
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    EXPECT_GE(made.values[i], 0.0F);
    EXPECT_LE(made.values[i], 1.0F);
    largest = std::max(largest, std::abs(static_cast<int>(std::lround(255.0F * made.values[i])) - wanted[i]));
  }
  return wanted.size() == made.values.size() ? largest : 255;
}

int after(const std::string& name, const std::function<void(const Planes&)>& change) {
  Canvas canvas = start();
  change(canvas.planes());
  return difference(canvas, name);
}

TEST(ImageOps, CropAsTorchvision) {
  for (const CropBox& box : {CropBox{0, 0, 52, 40}, CropBox{7, 5, 30, 33}, CropBox{11, 3, 12, 9},
                             CropBox{40, 30, 12, 10}, CropBox{2, 20, 49, 11}, CropBox{17, 18, 1, 1}}) {
    std::string name = "crop";
    for (const double part : {box.x, box.y, box.width, box.height}) name += "_" + std::to_string(std::lround(part));
    EXPECT_LE(difference(cropped(box), name), kTolerance) << name;
  }
}

TEST(ImageOps, LookAtNothingOutsideOfTheBox) {
  Image image = source();
  Canvas inside;
  resized_crop(image, {7, 5, 30, 33}, inside.planes());
  for (std::uint32_t y = 0; y < image.height; ++y) {
    for (std::uint32_t x = 0; x < image.width; ++x) {
      if (x >= 7 && x < 37 && y >= 5 && y < 38) continue;
      for (std::size_t channel = 0; channel < 3; ++channel) image.pixels[(y * image.width + x) * 3 + channel] = 255;
    }
  }
  Canvas again;
  resized_crop(image, {7, 5, 30, 33}, again.planes());
  EXPECT_EQ(again.values, inside.values);
}

TEST(ImageOps, ChangeColoursAsTorchvision) {
  for (const float factor : {0.2F, 1.0F, 1.7F}) {
    const std::string text = std::to_string(factor).substr(0, 3);
    EXPECT_LE(after("brightness_" + text, [&](const Planes& image) { adjust_brightness(image, factor); }), kTolerance);
    EXPECT_LE(after("contrast_" + text, [&](const Planes& image) { adjust_contrast(image, factor); }), kTolerance);
    EXPECT_LE(after("saturation_" + text, [&](const Planes& image) { adjust_saturation(image, factor); }), kTolerance);
  }
  for (const auto& [shift, name] :
       {std::pair(-0.5F, "-0.5"), {-0.1F, "-0.1"}, {0.0F, "0.0"}, {0.07F, "0.07"}, {0.2F, "0.2"}, {0.5F, "0.5"}}) {
    EXPECT_LE(after(std::string("hue_") + name, [shift = shift](const Planes& image) { adjust_hue(image, shift); }),
              kTolerance)
        << name;
  }
  EXPECT_LE(after("grayscale", [](const Planes& image) { to_grayscale(image); }), kTolerance);
}

TEST(ImageOps, FlipBlurAndSolarizeAsTorchvision) {
  EXPECT_LE(after("flip", [](const Planes& image) { flip_horizontally(image); }), kTolerance);
  for (const auto& [sigma, name] : {std::pair(0.1F, "0.1"), {0.8F, "0.8"}, {2.0F, "2.0"}}) {
    for (const std::uint32_t taps : {3U, 23U}) {
      const std::string wanted = "blur_" + std::to_string(taps) + "_" + name;
      EXPECT_LE(after(wanted, [taps, sigma = sigma](const Planes& image) { gaussian_blur(image, taps, sigma); }),
                kTolerance)
          << wanted;
    }
  }
}

TEST(ImageOps, SolarizeInvertsWhatIsNotBelowTheThreshold) {
  for (const auto& [threshold, name] : {std::pair(0.3F, "solarize_0.3"), {0.5F, "solarize_0.5"}}) {
    EXPECT_LE(after(name, [threshold = threshold](const Planes& image) { solarize(image, threshold); }), kTolerance);
  }
  Canvas canvas;
  canvas.values[0] = 0.5F;
  canvas.values[1] = 0.49F;
  solarize(canvas.planes(), 0.5F);
  EXPECT_EQ(canvas.values[0], 0.5F);
  EXPECT_EQ(canvas.values[1], 0.49F);
}

TEST(ImageOps, MakeAViewInTheOrderOfTheRecipe) {
  CropParameters parameters;
  parameters.box = {7, 5, 30, 33};
  parameters.flip = parameters.jitter = parameters.grayscale = parameters.solarize = true;
  parameters.order = {JitterStep::kBrightness, JitterStep::kSaturation, JitterStep::kContrast, JitterStep::kHue};
  parameters.brightness = 0.7F;
  parameters.saturation = 1.5F;
  parameters.contrast = 0.6F;
  parameters.hue = 0.1F;
  parameters.blur_sigma = 1.3F;
  Canvas canvas;
  apply_crop(source(), 1, parameters, 0.5F, canvas.planes());
  EXPECT_LE(difference(canvas, "chain"), kTolerance);
  std::swap(parameters.order[1], parameters.order[2]);  // The control: another order gives other pixels.
  parameters.grayscale = false;
  apply_crop(source(), 1, parameters, 0.5F, canvas.planes());
  EXPECT_GT(difference(canvas, "chain"), kTolerance);
}

TEST(ImageOps, LeaveTheColourOfAGreyImageAndChangeTheRest) {
  std::vector<float> values(std::size_t{kSide} * kSide, 0.25F);
  values[0] = 0.75F;
  const std::vector<float> before = values;
  const Planes image{values, kSide, kSide, 1};
  adjust_hue(image, 0.3F);
  adjust_saturation(image, 0.1F);
  to_grayscale(image);
  EXPECT_EQ(values, before);
  adjust_contrast(image, 0.5F);
  EXPECT_NEAR(values[0], 0.5 * 0.75 + 0.5 * (0.25 + 0.5 / (kSide * kSide)), 1e-6);
}

}  // namespace
}  // namespace spillway::app::image_ops_test
