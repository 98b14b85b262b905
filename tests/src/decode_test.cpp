#include <spillway/app/data/decode.hpp>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <zlib.h>

#include <spillway/app/data/jpeg_file.hpp>
#include <spillway/offload/error.hpp>
#include <support/spawn.hpp>
#include <support/temp_dir.hpp>

#include "image_files.hpp"
#include "support/errors.hpp"

namespace spillway::app::decode_test {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;

const fs::path kImages = fs::path(SPILLWAY_TEST_DATA) / "images";

std::string content(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::span<const std::byte> bytes_of(const std::string& text) { return std::as_bytes(std::span(text)); }

Image decoded(const std::string& text, const DecodeOptions& options = {}) {
  return decode_image(bytes_of(text), "image", options);
}

std::string refusal(const std::string& text, const DecodeOptions& options = {}) {
  return message_of<FormatError>([&] { (void)decoded(text, options); });
}

/// Decodes every file of a folder that make_images.py wrote, and compares size and sum of pixels. How many lines.
int compare_with_pillow(const fs::path& folder) {
  std::ifstream table(folder / "expected.csv");
  int lines = 0;
  for (std::string line; std::getline(table, line); ++lines) {
    SCOPED_TRACE(line);
    const std::string name = line.substr(0, line.find(','));
    std::istringstream rest(line.substr(name.size() + 1));
    char comma = 0;
    std::uint32_t shrink = 0;
    std::uint32_t width = 0;
    std::uint32_t height = 0;
    std::uint32_t channels = 0;
    std::uint64_t sum = 0;
    rest >> shrink >> comma >> width >> comma >> height >> comma >> channels >> comma >> sum;
    const std::string file = content(folder / name);
    const Image image = decode_image(bytes_of(file), name, {.shrink = shrink});
    EXPECT_EQ(image.width, width);
    EXPECT_EQ(image.height, height);
    EXPECT_EQ(image.channels, channels);
    EXPECT_EQ(crc32(0, image.pixels.data(), static_cast<uInt>(image.pixels.size())), sum);
    if (shrink == 1) {
      const ImageHeader header = read_image_header(bytes_of(file), name);
      EXPECT_EQ(header.width, width);
      EXPECT_EQ(header.height, height);
      EXPECT_EQ(header.channels, channels);
    }
  }
  return lines;
}

TEST(Decode, GivesThePixelsOfPillowForEveryKindOfFile) {
  EXPECT_EQ(compare_with_pillow(kImages), SPILLWAY_IMAGE_LINES);
}

/// A Python that has Pillow: SPILLWAY_PYTHON, or the one that `make peers` installs.
fs::path python_with_pillow() {
  const char* const chosen = std::getenv("SPILLWAY_PYTHON");
  const char* const home = std::getenv("HOME");
  const fs::path cache = fs::path(home == nullptr ? "" : home) / ".cache" / "spillway";
  const fs::path python = chosen != nullptr ? fs::path(chosen) : cache / "peers" / "deepspeed" / "bin" / "python";
  if (!fs::exists(python)) return {};
  return test::run(python, {.arguments = {"-c", "import PIL, numpy"}}).exit_status == 0 ? python : fs::path();
}

TEST(Decode, GivesThePixelsOfPillowForFilesThatAreDrawn) {
  const fs::path python = python_with_pillow();
  if (python.empty()) {
    GTEST_SKIP() << "no Python with Pillow: `make peers` installs one, or SPILLWAY_PYTHON names it";
  }
  const test::TempDir folder;
  const test::Outcome made =
      test::run(python, {.arguments = {"-W", "ignore", (fs::path(SPILLWAY_TEST_DATA) / "make_images.py").string(),
                                       folder.path().string(), "--random", "10"}});
  ASSERT_EQ(made.exit_status, 0) << made.error;
  EXPECT_GE(compare_with_pillow(folder.path()), 40);
}

TEST(Decode, RefusesWhatIsNoImage) {
  EXPECT_THAT(refusal("P6 1 1 255 abc"), AllOf(HasSubstr("image"), HasSubstr("neither a JPEG nor a PNG")));
  EXPECT_THAT(refusal(""), HasSubstr("neither"));
}

TEST(Decode, RefusesFilesThatAreCutShortWhereverTheyAre) {
  for (const char* name : {"baseline_420.jpg", "progressive.jpg", "rgb.png", "rgb_interlaced.png"}) {
    const std::string whole = content(kImages / name);
    for (const double share : {0.2, 0.5, 0.8, 0.95}) {
      SCOPED_TRACE(std::string(name) + " " + std::to_string(share));
      EXPECT_THAT(refusal(whole.substr(0, static_cast<std::size_t>(share * static_cast<double>(whole.size())))),
                  HasSubstr("damaged"));
    }
  }
}

TEST(Decode, TakesAJpegThatLacksNothingButItsEndMarker) {
  const std::string whole = content(kImages / "baseline_420.jpg");
  EXPECT_EQ(decoded(whole.substr(0, whole.size() - 2)), decoded(whole));
}

TEST(Decode, RefusesAJpegWhoseCodesAreDamaged) {
  std::string file = content(kImages / "baseline_420.jpg");
  for (std::size_t at = file.size() / 2; at < file.size() / 2 + 60; ++at) file[at] = '\xD9';
  EXPECT_THAT(refusal(file), HasSubstr("damaged JPEG"));
}

TEST(Decode, RefusesAPngWithAWrongSum) {
  std::string file = content(kImages / "rgb.png");
  file[file.size() / 2] = static_cast<char>(file[file.size() / 2] ^ 1);
  EXPECT_THAT(refusal(file), HasSubstr("damaged PNG"));
}

/// The header of this PNG with other sides, and its sum made right.
std::string with_sides(std::string png, std::uint32_t width, std::uint32_t height) {
  const auto put = [&](std::size_t at, std::uint32_t value) {
    for (const unsigned shift : {24U, 16U, 8U, 0U}) png[at++] = static_cast<char>(value >> shift & 0xFFU);
  };
  put(16, width);
  put(20, height);
  put(29, static_cast<std::uint32_t>(crc32(0, reinterpret_cast<const Bytef*>(png.data()) + 12, 17)));
  return png;
}

TEST(Decode, RefusesHeadersThatPromiseMoreThanIsDecodedOrThanTheFileCanHold) {
  const std::string png = content(kImages / "rgb.png");
  EXPECT_THAT(refusal(with_sides(png, 20000, 20000)), HasSubstr("20000 x 20000"));
  EXPECT_THAT(refusal(with_sides(png, 70000, 1)), HasSubstr("damaged PNG"));
  EXPECT_THAT(refusal(with_sides(png, 10000, 10000)), AllOf(HasSubstr("10000 x 10000"), HasSubstr("can hold")));
  EXPECT_THAT(refusal(png, {.max_pixels = 1000}), HasSubstr("at most 1000"));
  std::string jpeg = content(kImages / "baseline_444.jpg");
  const std::size_t frame = jpeg.find("\xFF\xC0");
  ASSERT_NE(frame, std::string::npos);
  for (const std::size_t at : {frame + 5, frame + 7}) jpeg.replace(at, 2, "\x4E\x20");
  EXPECT_THAT(refusal(jpeg), AllOf(HasSubstr("20000 x 20000"), HasSubstr("at most")));
}

TEST(Decode, ShrinksAJpegToItsEighth) {
  const std::string file = content(kImages / "baseline_444.jpg");
  const Image image = decoded(file, {.shrink = 8});
  EXPECT_EQ(image.width, 5U);
  EXPECT_EQ(image.height, 4U);
  EXPECT_EQ(image.pixels.size(), 60U);
}

TEST(Decode, GivesBackWhatItEncoded) {
  Image image{64, 48, 3, std::vector<std::uint8_t>(64 * 48 * 3)};
  for (std::size_t i = 0; i < image.pixels.size(); ++i) image.pixels[i] = static_cast<std::uint8_t>(i / 60);
  const Image again = decode_image(encode_jpeg(image, 100), "encoded");
  ASSERT_EQ(again.pixels.size(), image.pixels.size());
  for (std::size_t i = 0; i < image.pixels.size(); ++i) ASSERT_NEAR(again.pixels[i], image.pixels[i], 12) << i;
}

TEST(Image, BecomesGreyAndColouredAgain) {
  const Image colour{2, 1, 3, {255, 0, 0, 10, 20, 30}};
  const Image grey = with_channels(colour, 1);
  EXPECT_THAT(grey.pixels, ::testing::ElementsAre(76, 18));
  EXPECT_THAT(with_channels(grey, 3).pixels, ::testing::ElementsAre(76, 76, 76, 18, 18, 18));
}

}  // namespace
}  // namespace spillway::app::decode_test
