#pragma once

#include <spillway/app/config/config.hpp>
#include <spillway/app/data/image_set.hpp>
#include <spillway/app/encoders/encoder.hpp>

namespace spillway::app {

/// Few-label accuracy in percent of the pixels themselves.
[[nodiscard]] double raw_accuracy(const SplitImages& images, const Config& config);

/// Few-label accuracy in percent of the encoder's features, with running batch-norm statistics. The network is in
/// training mode before and after.
[[nodiscard]] double encoder_accuracy(const SplitImages& images, ProjectedEncoder& network, const Config& config);

}  // namespace spillway::app
