#pragma once

#include <cstdint>
#include <span>

#include <spillway/app/config/config.hpp>
#include <spillway/app/data/counter_rng.hpp>

namespace spillway::app {

/// What is done to one grey image. The defaults leave it as it is.
struct AugmentParameters {
  float rotation = 0.0F;     ///< Radians, counter-clockwise.
  float translate_x = 0.0F;  ///< Share of the width, to the right.
  float translate_y = 0.0F;  ///< Share of the height, downwards.
  float scale = 1.0F;        ///< Above 1 enlarges.
  float shear = 0.0F;        ///< Radians.
  float contrast = 1.0F;     ///< Factor.
  float brightness = 0.0F;   ///< Added after the factor.
  float noise = 0.0F;        ///< Standard deviation.
};

/// Which view of which image in which epoch: all that an augmentation depends on beside the configuration.
struct ViewName {
  std::uint64_t seed = 0;
  std::uint32_t epoch = 0;
  std::uint32_t sample = 0;  ///< Index in the data set, not in the batch.
  std::uint32_t view = 0;
};

/// Draws the parameters within the configuration's bounds. Always the same number of draws.
[[nodiscard]] AugmentParameters draw_augmentation(const AugmentConfig& config, CounterRng& rng) noexcept;

/// Warps, changes intensity and adds noise; values are clamped to [0, 1], outside of the image is 0.
/// @param image  [height * width] float32, row-major, values in [0, 1]; must not overlap `out`.
/// @param out    [height * width] float32, overwritten.
/// @param rng    Source of the noise alone; untouched where parameters.noise is 0.
void apply_augmentation(std::span<const float> image, std::span<float> out, std::uint32_t width,
                        const AugmentParameters& parameters, CounterRng& rng) noexcept;

/// Draws and applies; a copy where the configuration has it disabled. A pure function of its arguments, whatever the
/// order, the thread or the batch that an image is asked for in.
void augment(std::span<const float> image, std::span<float> out, std::uint32_t width, const AugmentConfig& config,
             const ViewName& name) noexcept;

}  // namespace spillway::app
