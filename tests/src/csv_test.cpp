#include <spillway/app/data/csv.hpp>

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <spillway/offload/error.hpp>

#include "support/errors.hpp"

namespace spillway::app::csv_test {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

ImageSet parse(std::string_view text) { return parse_csv(text, "f.csv"); }

void expect_refused(std::string_view text, std::string_view where, std::string_view what) {
  EXPECT_THAT(message_of<FormatError>([&] { (void)parse(text); }), AllOf(HasSubstr(where), HasSubstr(what))) << text;
}

TEST(Csv, ReadsPixelsAndThenTheLabel) {
  const ImageSet set = parse("0,1,2,3,7\n4,5,6,200,8\n");
  EXPECT_EQ(set.width, 2U);
  EXPECT_EQ(set.height, 2U);
  EXPECT_THAT(set.pixels, ElementsAre(0, 1, 2, 3, 4, 5, 6, 200));
  EXPECT_THAT(set.labels, ElementsAre(7, 8));
  EXPECT_EQ(set.peak, 200);
}

TEST(Csv, ReadsOneSetFromAllWaysToWriteIt) {
  const ImageSet set = parse("0,1,2,3,7\n4,5,6,7,8\n");
  EXPECT_EQ(parse("0,1,2,3,7\n4,5,6,7,8"), set) << "no line end at the end";
  EXPECT_EQ(parse("0,1,2,3,7\r\n4,5,6,7,8\r\n"), set) << "DOS line ends";
  EXPECT_EQ(parse("p0,p1,p2,p3,label\n0,1,2,3,7\n4,5,6,7,8\n"), set) << "a header";
  EXPECT_EQ(parse("\n0,1,2,3,7\n\n4,5,6,7,8\n\n"), set) << "empty lines";
  EXPECT_EQ(parse("0.0, 1.,2 ,\t3,7.00\n4,5,6,7,8\n"), set) << "decimal points and blanks";
}

TEST(Csv, HasAPeakThatCanBeDividedBy) { EXPECT_EQ(parse("0,0\n").peak, 1); }

TEST(Csv, RefusesAFileWithoutAnImage) {
  for (const char* text : {"", "\n\n", "only,a,header\n"}) {
    expect_refused(text, "f.csv: no image", "wanted lines");
  }
}

TEST(Csv, NamesALineThatIsTooShortOrTooLong) {
  expect_refused("1,2,3,4,0\n1,2,3,4,0\n1,2,3", "f.csv, line 3: wanted 5 values", "got 3");
  expect_refused("1,2,3,4,0\n1,2,3,4,0,9\n", "line 2: wanted 5 values", "got 6");
  expect_refused("1,2,3,4,0\n1,2,3,4,0,\n", "line 2: wanted 5 values", "got 6");
  expect_refused("1,2,3,4,0\n1,2,3,4,\n", "line 2: wanted 5 values", "");
}

TEST(Csv, NamesAFieldThatIsNoIntegerInRange) {
  expect_refused("1,2,3,4,0\n1,x,3,4,0\n", "f.csv, line 2: column 2, a pixel: wanted an integer of 0 to 255", "\"x\"");
  expect_refused("1,256,3,4,0\n", "line 1: column 2", "\"256\"");
  expect_refused("1,-1,3,4,0\n", "line 1: column 2", "\"-1\"");
  expect_refused("1,0.5,3,4,0\n", "line 1: column 2", "\"0.5\"");
  expect_refused("nan,1,3,4,0\n", "line 1: column 1", "\"nan\"");
  expect_refused("1,,3,4,0\n", "line 1: column 2", "\"\"");
  expect_refused("1,99999999999999999999,3,4,0\n", "line 1: column 2", "99999999999999999999");
  expect_refused("1,2,3,4,1000\n", "line 1: column 5, a label: wanted an integer of 0 to 999", "\"1000\"");
}

TEST(Csv, CutsALongFieldInItsMessage) {
  try {
    (void)parse("1," + std::string(100'000, 'y') + ",3,4,0\n");
    FAIL() << "accepted";
  } catch (const FormatError& error) {
    EXPECT_LT(std::string_view(error.what()).size(), 200U);
  }
}

TEST(Csv, RefusesALineThatIsNoSquareImage) {
  expect_refused("1,2,3,0\n", "f.csv, line 1: it has 3 values", "no square image");
  expect_refused("7\n", "line 1: it has 0 values", "");
}

}  // namespace
}  // namespace spillway::app::csv_test
