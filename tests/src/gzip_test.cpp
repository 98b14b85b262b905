#include <spillway/app/data/gzip.hpp>

#include <random>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <spillway/offload/error.hpp>

#include "image_files.hpp"
#include "support/errors.hpp"

namespace spillway::app::gzip_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

std::string unpacked(std::string_view packed) {
  const std::vector<std::byte> content = gunzip(std::as_bytes(std::span(packed)), "f.gz");
  return {reinterpret_cast<const char*>(content.data()), content.size()};
}

/// Text that compresses little, larger than any buffer of the code under test.
std::string noise(std::size_t size) {
  std::mt19937 random(1);
  std::string text(size, '\0');
  for (char& c : text) {
    c = static_cast<char>(random());
  }
  return text;
}

TEST(Gzip, IsRecognisedByItsFirstBytes) {
  const std::string packed = test::gzipped("x");
  const std::string_view plain = "1,2";
  EXPECT_TRUE(is_gzip(std::as_bytes(std::span(packed))));
  EXPECT_FALSE(is_gzip(std::as_bytes(std::span(plain))));
  EXPECT_FALSE(is_gzip({}));
}

TEST(Gzip, UnpacksOneMemberAndSeveral) {
  EXPECT_EQ(unpacked(test::gzipped("")), "");
  EXPECT_EQ(unpacked(test::gzipped("one,two\n")), "one,two\n");
  EXPECT_EQ(unpacked(test::gzipped("one,") + test::gzipped("") + test::gzipped("two\n")), "one,two\n");
  const std::string large = noise(1'000'000);
  EXPECT_EQ(unpacked(test::gzipped(large)), large);
}

TEST(Gzip, SaysHowFarAFileThatIsCutShortGoes) {
  const std::string packed = test::gzipped(noise(1000));
  for (const std::size_t length : {std::size_t{2}, std::size_t{11}, packed.size() / 2, packed.size() - 1}) {
    EXPECT_THAT(message_of<FormatError>([&] { (void)unpacked(packed.substr(0, length)); }),
                AllOf(HasSubstr("f.gz: cut short"), HasSubstr("after " + std::to_string(length) + " bytes")));
  }
}

TEST(Gzip, RefusesDamagedContentByItsChecksum) {
  std::string packed = test::gzipped(noise(1000));
  packed[500] = static_cast<char>(packed[500] ^ 1);
  EXPECT_THAT(message_of<FormatError>([&] { (void)unpacked(packed); }), HasSubstr("f.gz: damaged gzip data"));
}

TEST(Gzip, RefusesWhatFollowsTheLastMember) {
  EXPECT_THAT(message_of<FormatError>([] { (void)unpacked(test::gzipped("one") + "rest of another file"); }),
              HasSubstr("damaged gzip data"));
}

TEST(Gzip, RefusesAFileThatWouldFillTheMemory) {
  EXPECT_THAT(message_of<FormatError>([] { (void)unpacked(test::gzipped(std::string(10'000'000, '0'))); }),
              HasSubstr("more than 100 times its size"));
}

}  // namespace
}  // namespace spillway::app::gzip_test
