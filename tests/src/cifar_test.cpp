#include <spillway/app/data/cifar.hpp>

#include <array>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <spillway/offload/error.hpp>

#include "support/errors.hpp"

namespace spillway::app::cifar_test {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string record(const std::string& labels, char red, char green, char blue) {
  return labels + std::string(1024, red) + std::string(1024, green) + std::string(1024, blue);
}

ImageSet parse(const std::string& file, CifarKind kind) {
  const std::array files = {NamedBytes{std::as_bytes(std::span(file)), "a.bin"}};
  return parse_cifar(files, kind);
}

TEST(Cifar, ReadsLabelAndPlanes) {
  const ImageSet set = parse(record("\x03", 1, 2, 3) + record("\x09", 4, 5, 6), CifarKind::kTen);
  EXPECT_THAT(set.labels, ElementsAre(3, 9));
  EXPECT_EQ(set.channels, 3U);
  EXPECT_EQ(set.width, 32U);
  EXPECT_EQ(set.peak, 255);
  EXPECT_EQ(set.image(1)[0], 4);
  EXPECT_EQ(set.image(1)[1024], 5);
  EXPECT_EQ(set.image(1)[3071], 6);
}

TEST(Cifar, TakesTheFineLabelOfCifar100) {
  EXPECT_THAT(parse(record("\x04\x63", 0, 0, 0), CifarKind::kHundred).labels, ElementsAre(99));
}

TEST(Cifar, JoinsFilesInTheirOrder) {
  const std::string first = record("\x01", 0, 0, 0);
  const std::string second = record("\x02", 0, 0, 0);
  const std::array files = {NamedBytes{std::as_bytes(std::span(first)), "a"},
                            NamedBytes{std::as_bytes(std::span(second)), "b"}};
  EXPECT_THAT(parse_cifar(files, CifarKind::kTen).labels, ElementsAre(1, 2));
}

TEST(Cifar, RefusesWhatIsNoWholeNumberOfImages) {
  EXPECT_THAT(message_of<FormatError>([] { (void)parse(record("\x01", 0, 0, 0) + "x", CifarKind::kTen); }),
              AllOf(HasSubstr("a.bin"), HasSubstr("3074 bytes")));
  EXPECT_THAT(message_of<FormatError>([] { (void)parse("", CifarKind::kTen); }), HasSubstr("0 bytes"));
}

TEST(Cifar, RefusesALabelOutOfRange) {
  EXPECT_THAT(message_of<FormatError>([] { (void)parse(record("\x0A", 0, 0, 0), CifarKind::kTen); }),
              AllOf(HasSubstr("image 0"), HasSubstr("label 10")));
}

}  // namespace
}  // namespace spillway::app::cifar_test
