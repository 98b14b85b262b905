#include <spillway/app/data/view_maker.hpp>

#include <algorithm>
#include <cstddef>
#include <string>
#include <vector>

#include <spillway/app/data/decode.hpp>
#include <spillway/app/data/file_bytes.hpp>

namespace spillway::app {
namespace {

// Keeps these streams apart from those of other users of the seed; views are numbered from here.
constexpr std::uint32_t kCropPurpose = 0x56000000U;

ViewRecipe chosen_recipe(const ImageSet& set, ViewRecipe recipe, Method method) {
  if (recipe != ViewRecipe::kAuto) return recipe;
  if (set.files.empty() && set.channels == 1) return ViewRecipe::kDigits;
  if (method == Method::kMoco) return ViewRecipe::kMocoV2;
  return method == Method::kByol ? ViewRecipe::kByol : ViewRecipe::kSimClr;
}

/// An image of a set as the crops take it: not decoded yet where it is a file.
class SourceImage {
 public:
  SourceImage(const ImageSet& set, std::uint32_t index) : set_(set), index_(index) {
    if (set.files.empty()) return;
    label_ = set.files[index].string();
    bytes_ = read_file(set.files[index]);
    header_ = read_image_header(bytes_, label_);
  }

  [[nodiscard]] std::uint32_t width() const noexcept { return set_.files.empty() ? set_.width : header_.width; }
  [[nodiscard]] std::uint32_t height() const noexcept { return set_.files.empty() ? set_.height : header_.height; }
  [[nodiscard]] bool shrinks() const noexcept { return header_.shrinks; }

  [[nodiscard]] Image decode(std::uint32_t shrink) const {
    if (set_.files.empty()) return from_memory();
    return with_channels(decode_image(bytes_, label_, {.shrink = shrink}), set_.channels);
  }

 private:
  [[nodiscard]] Image from_memory() const {
    const std::span<const std::uint8_t> stored = set_.image(index_);
    Image image{set_.width, set_.height, set_.channels, std::vector<std::uint8_t>(stored.size())};
    const std::size_t plane = stored.size() / set_.channels;
    for (std::size_t channel = 0; channel < set_.channels; ++channel) {
      for (std::size_t i = 0; i < plane; ++i) {
        image.pixels[i * set_.channels + channel] =
            static_cast<std::uint8_t>(255U * stored[channel * plane + i] / set_.peak);
      }
    }
    return image;
  }

  const ImageSet& set_;
  std::uint32_t index_;
  std::string label_;
  std::vector<std::byte> bytes_;
  ImageHeader header_;
};

}  // namespace

ViewMaker::ViewMaker(const ImageSet& set, const DataConfig& config, Method method)
    : set_(set), augment_(config.augment), recipe_(chosen_recipe(set, config.recipe, method)) {
  const std::uint32_t side = std::max(set.width, set.height);
  for (std::uint32_t view = 0; view < crops_.size(); ++view) {
    crops_[view] = crop_augmentation(recipe_, config.view, view, side);
  }
}

void ViewMaker::make(const ViewName& first, std::span<const std::span<float>> views) const {
  if (!augment_.enabled) {
    for (const std::span<float> view : views) plain(first.sample, view);
  } else if (recipe_ == ViewRecipe::kDigits) {
    digit_views(first, views);
  } else {
    crop_views(first, views);
  }
}

void ViewMaker::plain(std::uint32_t sample, std::span<float> out) const {
  if (set_.files.empty()) {
    set_.copy_scaled(sample, out);
    return;
  }
  const SourceImage source(set_, sample);
  const CropParameters parameters{.box = centre_crop(source.width(), source.height())};
  const std::uint32_t shrink = source.shrinks() ? shrink_for(parameters.box.width, parameters.box.height) : 1;
  apply_crop(source.decode(shrink), shrink, parameters, 1.0F, planes(out));
}

void ViewMaker::crop_views(const ViewName& first, std::span<const std::span<float>> views) const {
  const SourceImage source(set_, first.sample);
  std::vector<CropParameters> drawn;
  double width = source.width();
  double height = source.height();
  for (std::uint32_t view = first.view; view < first.view + views.size(); ++view) {
    CounterRng rng({first.seed, kCropPurpose + view, first.epoch, first.sample});
    drawn.push_back(draw_crop(crops_.at(view), source.width(), source.height(), rng));
    width = std::min(width, drawn.back().box.width);
    height = std::min(height, drawn.back().box.height);
  }
  const std::uint32_t shrink = source.shrinks() ? shrink_for(width, height) : 1;
  const Image image = source.decode(shrink);
  for (std::size_t i = 0; i < views.size(); ++i) {
    const auto threshold = static_cast<float>(crops_.at(first.view + i).threshold);
    apply_crop(image, shrink, drawn[i], threshold, planes(views[i]));
  }
}

void ViewMaker::digit_views(const ViewName& first, std::span<const std::span<float>> views) const {
  std::vector<float> image(set_.image_numel());
  plain(first.sample, image);
  const std::size_t plane = image.size() / set_.channels;
  for (std::size_t i = 0; i < views.size(); ++i) {
    ViewName name = first;
    name.view += static_cast<std::uint32_t>(i);
    // Of colour images each channel is moved and changed alike.
    for (std::size_t at = 0; at < image.size(); at += plane) {
      augment(std::span(image).subspan(at, plane), views[i].subspan(at, plane), set_.width, augment_, name);
    }
  }
}

Planes ViewMaker::planes(std::span<float> out) const noexcept { return {out, set_.width, set_.height, set_.channels}; }

/// By how much a JPEG may shrink while it is decoded so that a part of it is still as large as a view.
std::uint32_t ViewMaker::shrink_for(double width, double height) const noexcept {
  std::uint32_t shrink = 8;
  while (shrink > 1 && (width < 1.0 * shrink * set_.width || height < 1.0 * shrink * set_.height)) shrink /= 2;
  return shrink;
}

}  // namespace spillway::app
