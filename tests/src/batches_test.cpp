#include <spillway/app/data/batches.hpp>

#include <vector>

#include <gtest/gtest.h>

#include <ATen/ops/equal.h>
#include <ATen/ops/tensor.h>

#include <spillway/app/data/dataset.hpp>

namespace spillway::app::batches_test {
namespace {

const ImageSet& small_set() {
  static const ImageSet set = make_synthetic({.images = 12, .classes = 3, .side = 6}, 1);
  return set;
}

ViewMaker views(const DataConfig& config = {}) { return {small_set(), config, Method::kMoco}; }

TEST(Batches, HoldTheWholeSetAsImagesAndLabels) {
  const at::Tensor images = make_images(small_set());
  EXPECT_EQ(images.sizes(), (std::vector<std::int64_t>{12, 1, 6, 6}));
  EXPECT_EQ(images.scalar_type(), at::kFloat);
  const ImageSet& set = small_set();
  EXPECT_FLOAT_EQ(images[7][0][2][3].item<float>(), static_cast<float>(set.image(7)[2 * 6 + 3]) / set.peak);
  const at::Tensor wanted = at::tensor({0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2}, at::kLong);
  EXPECT_TRUE(at::equal(make_labels(set), wanted));
}

TEST(Batches, HoldTheSamplesThatWereAskedForInThatOrder) {
  const std::vector<std::uint32_t> samples = {5, 0, 11};
  const at::Tensor view = make_view(views({.augment = {.enabled = false}}), samples, {});
  const at::Tensor wanted = make_images(small_set()).index_select(0, at::tensor({5, 0, 11}, at::kLong));
  EXPECT_TRUE(at::equal(view, wanted));
}

TEST(Batches, GiveASampleTheSamePixelsInWhateverBatchItIs) {
  const BatchView which{.seed = 1, .epoch = 2, .view = 1};
  const std::vector<std::uint32_t> two = {3, 4};
  const std::vector<std::uint32_t> three = {4, 9, 3};
  const at::Tensor first = make_view(views(), two, which);
  const at::Tensor second = make_view(views(), three, which);
  EXPECT_TRUE(at::equal(first[0], second[2]));
  EXPECT_TRUE(at::equal(first[1], second[0]));
}

TEST(Batches, GiveTwoViewsOfASampleDifferentPixels) {
  const std::vector<std::uint32_t> samples = {3};
  EXPECT_FALSE(at::equal(make_view(views(), samples, {.view = 0}), make_view(views(), samples, {.view = 1})));
}

TEST(Batches, MayBeEmpty) { EXPECT_EQ(make_view(views(), {}, {}).size(0), 0); }

}  // namespace
}  // namespace spillway::app::batches_test
