#include <spillway/app/data/idx.hpp>

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <spillway/offload/error.hpp>

#include "image_files.hpp"
#include "support/errors.hpp"

namespace spillway::app::idx_test {
namespace {

using test::idx_bytes;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

const std::string kImages = idx_bytes({2, 1, 3}, std::string("\x00\x01\x02\x03\x04\xC8", 6));
const std::string kLabels = idx_bytes({2}, "\x07\x08");

ImageSet parse(std::string_view images, std::string_view labels) {
  return parse_idx({std::as_bytes(std::span(images)), "images"}, {std::as_bytes(std::span(labels)), "labels"});
}

void expect_refused(std::string_view images, std::string_view labels, std::string_view where, std::string_view what) {
  EXPECT_THAT(message_of<FormatError>([&] { (void)parse(images, labels); }), AllOf(HasSubstr(where), HasSubstr(what)));
}

TEST(Idx, ReadsImagesAndLabels) {
  const ImageSet set = parse(kImages, kLabels);
  EXPECT_EQ(set.width, 3U);
  EXPECT_EQ(set.height, 1U);
  EXPECT_THAT(set.pixels, ElementsAre(0, 1, 2, 3, 4, 200));
  EXPECT_THAT(set.labels, ElementsAre(7, 8));
  EXPECT_EQ(set.peak, 200);
}

TEST(Idx, SaysWhatATruncatedFileWantedAndGot) {
  expect_refused(kImages.substr(0, 10), kLabels, "images: truncated: wanted 16 bytes of header", "got 10");
  expect_refused(kImages.substr(0, kImages.size() - 1), kLabels, "images: truncated: its header promises 6 bytes",
                 "got 5");
  expect_refused(kImages, kLabels.substr(0, 9), "labels: truncated: its header promises 2 bytes", "got 1");
  expect_refused("", kLabels, "images: truncated", "got 0");
}

TEST(Idx, RefusesBytesThatTheHeaderDoesNotPromise) {
  expect_refused(kImages + "x", kLabels, "images: 1 bytes more than the 6", "damaged");
}

TEST(Idx, RefusesAnotherKindOfFile) {
  expect_refused(kLabels + "xxxxxxxxx", kLabels, "images: no IDX file", "wanted 2051");
  expect_refused(kImages, kImages, "labels: no IDX file", "wanted 2049");
}

TEST(Idx, RefusesAHeaderWhoseSizesOverflowBeforeAllocating) {
  expect_refused(idx_bytes({0xFFFFFFFF, 0xFFFFFFFF, 0xFFFFFFFF}, ""), kLabels, "images: an image side of", "at most");
  expect_refused(idx_bytes({0xFFFFFFFF, 65536, 65536}, ""), kLabels, "images: truncated", "18446744069414584320");
}

TEST(Idx, RefusesFilesThatDoNotBelongTogether) {
  expect_refused(kImages, idx_bytes({3}, "\x01\x02\x03"), "labels: 3 labels for the 2 images of images", "");
}

TEST(Idx, RefusesAFileWithoutAnImage) {
  expect_refused(idx_bytes({0, 28, 28}, ""), idx_bytes({0}, ""), "images: no image in it", "");
  expect_refused(idx_bytes({2, 0, 28}, ""), kLabels, "images: no image in it", "");
}

TEST(Idx, NamesTheLabelsFileOfAnImagesFile) {
  EXPECT_EQ(idx_labels_name("train-images-idx3-ubyte"), "train-labels-idx1-ubyte");
  EXPECT_EQ(idx_labels_name("t10k-images.idx3-ubyte.gz"), "t10k-labels.idx1-ubyte.gz");
  EXPECT_EQ(idx_labels_name("images.csv"), std::nullopt);
  EXPECT_EQ(idx_labels_name("idx3-images"), std::nullopt);
}

}  // namespace
}  // namespace spillway::app::idx_test
