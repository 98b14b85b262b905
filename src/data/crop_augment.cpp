#include <spillway/app/data/crop_augment.hpp>

#include <algorithm>
#include <cmath>
#include <utility>

namespace spillway::app {
namespace {

constexpr std::uint32_t kSmallViewSide = 64;
constexpr double kCropRatio = 4.0 / 3.0;  // And its inverse.
constexpr int kCropTries = 10;
constexpr double kCentreShare = 0.875;

CropAugmentation recipe_of(ViewRecipe recipe, std::uint32_t view, bool small) noexcept {
  CropAugmentation made;
  if (recipe == ViewRecipe::kSimClr) {
    if (small) made.brightness = made.contrast = made.saturation = 0.4;
    if (small) made.hue = 0.1;
    if (small) made.blur = 0.0;
    return made;
  }
  made.brightness = made.contrast = made.saturation = 0.4;
  made.hue = 0.1;
  if (recipe == ViewRecipe::kByol) {
    made.saturation = 0.2;
    made.blur = view == 0 ? 1.0 : 0.1;
    made.solarize = view == 0 ? 0.0 : 0.2;
  } else {
    made.scale_min = 0.2;
    if (small) made.blur = 0.0;
  }
  return made;
}

bool happens(CounterRng& rng, double probability) noexcept { return double{rng.uniform()} < probability; }

double between(CounterRng& rng, double low, double high) noexcept { return low + (high - low) * double{rng.uniform()}; }

float jitter_factor(CounterRng& rng, double half_width) noexcept {
  return static_cast<float>(between(rng, std::max(0.0, 1.0 - half_width), 1.0 + half_width));
}

/// RandomResizedCrop.get_params.
CropBox draw_box(const CropAugmentation& recipe, std::uint32_t width, std::uint32_t height, CounterRng& rng) noexcept {
  const double area = double{static_cast<double>(width)} * height;
  const double log_ratio = std::log(kCropRatio);
  for (int attempt = 0; attempt < kCropTries; ++attempt) {
    const double target = area * between(rng, recipe.scale_min, recipe.scale_max);
    const double ratio = std::exp(between(rng, -log_ratio, log_ratio));
    const double box_width = std::nearbyint(std::sqrt(target * ratio));
    const double box_height = std::nearbyint(std::sqrt(target / ratio));
    if (box_width < 1.0 || box_height < 1.0 || box_width > width || box_height > height) continue;
    const std::uint32_t y = rng.below(height - static_cast<std::uint32_t>(box_height) + 1);
    const std::uint32_t x = rng.below(width - static_cast<std::uint32_t>(box_width) + 1);
    return {static_cast<double>(x), static_cast<double>(y), box_width, box_height};
  }
  double box_width = width;
  double box_height = height;
  if (box_width / box_height < 1.0 / kCropRatio) {
    box_height = std::nearbyint(box_width * kCropRatio);
  } else if (box_width / box_height > kCropRatio) {
    box_width = std::nearbyint(box_height * kCropRatio);
  }
  return {std::floor((width - box_width) / 2.0), std::floor((height - box_height) / 2.0), box_width, box_height};
}

void apply_jitter(const CropParameters& parameters, const Planes& out) {
  for (const JitterStep step : parameters.order) {
    switch (step) {
      case JitterStep::kBrightness:
        adjust_brightness(out, parameters.brightness);
        break;
      case JitterStep::kContrast:
        adjust_contrast(out, parameters.contrast);
        break;
      case JitterStep::kSaturation:
        adjust_saturation(out, parameters.saturation);
        break;
      case JitterStep::kHue:
        adjust_hue(out, parameters.hue);
        break;
    }
  }
}

}  // namespace

CropAugmentation crop_augmentation(ViewRecipe recipe, const ViewConfig& changes, std::uint32_t view,
                                   std::uint32_t side) noexcept {
  CropAugmentation made = recipe_of(recipe, view, side <= kSmallViewSide);
  const auto change = [](double& value, const std::optional<double>& changed) { value = changed.value_or(value); };
  change(made.scale_min, changes.crop_scale_min);
  change(made.scale_max, changes.crop_scale_max);
  made.scale_min = std::min(made.scale_min, made.scale_max);
  change(made.flip, changes.flip_probability);
  change(made.jitter, changes.jitter_probability);
  change(made.brightness, changes.brightness);
  change(made.contrast, changes.contrast);
  change(made.saturation, changes.saturation);
  change(made.hue, changes.hue);
  change(made.grayscale, changes.grayscale_probability);
  change(made.blur, changes.blur_probability);
  change(made.sigma_min, changes.blur_sigma_min);
  change(made.sigma_max, changes.blur_sigma_max);
  change(made.solarize, changes.solarize_probability);
  change(made.threshold, changes.solarize_threshold);
  return made;
}

CropParameters draw_crop(const CropAugmentation& recipe, std::uint32_t width, std::uint32_t height,
                         CounterRng& rng) noexcept {
  // One statement each: the order of draws is part of the result.
  CropParameters drawn;
  drawn.box = draw_box(recipe, width, height, rng);
  drawn.flip = happens(rng, recipe.flip);
  drawn.jitter = happens(rng, recipe.jitter);
  drawn.order = {JitterStep::kBrightness, JitterStep::kContrast, JitterStep::kSaturation, JitterStep::kHue};
  for (std::uint32_t left = 4; left > 1; --left) std::swap(drawn.order[left - 1], drawn.order[rng.below(left)]);
  drawn.brightness = jitter_factor(rng, recipe.brightness);
  drawn.contrast = jitter_factor(rng, recipe.contrast);
  drawn.saturation = jitter_factor(rng, recipe.saturation);
  drawn.hue = static_cast<float>(between(rng, -recipe.hue, recipe.hue));
  drawn.grayscale = happens(rng, recipe.grayscale);
  const bool blurs = happens(rng, recipe.blur);
  const auto sigma = static_cast<float>(between(rng, recipe.sigma_min, recipe.sigma_max));
  drawn.blur_sigma = blurs ? sigma : 0.0F;
  drawn.solarize = happens(rng, recipe.solarize);
  return drawn;
}

CropBox centre_crop(std::uint32_t width, std::uint32_t height) noexcept {
  const double side = std::max(1.0, std::nearbyint(kCentreShare * std::min(width, height)));
  return {std::floor((width - side) / 2.0), std::floor((height - side) / 2.0), side, side};
}

void apply_crop(const Image& image, std::uint32_t shrink, const CropParameters& parameters, float threshold,
                const Planes& out) {
  const CropBox& box = parameters.box;
  resized_crop(image, {box.x / shrink, box.y / shrink, box.width / shrink, box.height / shrink}, out);
  if (parameters.flip) flip_horizontally(out);
  if (parameters.jitter) apply_jitter(parameters, out);
  if (parameters.grayscale) to_grayscale(out);
  if (parameters.blur_sigma > 0.0F) gaussian_blur(out, 2 * (out.width / 20) + 1, parameters.blur_sigma);
  if (parameters.solarize) solarize(out, threshold);
}

}  // namespace spillway::app
