#include <spillway/app/data/image_folder.hpp>

#include <algorithm>
#include <filesystem>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <spillway/app/data/dataset.hpp>
#include <spillway/app/data/jpeg_file.hpp>
#include <spillway/app/data/view_maker.hpp>
#include <spillway/offload/error.hpp>
#include <support/temp_dir.hpp>

#include "image_files.hpp"
#include "support/errors.hpp"

namespace spillway::app::image_folder_test {
namespace {

namespace fs = std::filesystem;
using test::TempDir;
using test::write_file;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

std::string jpeg(std::uint8_t red, std::uint8_t blue = 0) {
  Image image{20, 12, 3, {}};
  for (int i = 0; i < 20 * 12; ++i) image.pixels.insert(image.pixels.end(), {red, 0, blue});
  const std::vector<std::byte> bytes = encode_jpeg(image, 95);
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

void put(const fs::path& path, const std::string& content) {
  fs::create_directories(path.parent_path());
  write_file(path, content);
}

/// Two classes of `each` images.
void fill(const fs::path& folder, int each) {
  for (int i = 0; i < each; ++i) {
    const std::string name = "image" + std::string(1, static_cast<char>('a' + i));
    put(folder / "cats" / (name + ".jpg"), jpeg(200));
    put(folder / "apes" / (name + ".JPEG"), jpeg(10, 200));
  }
}

DataConfig config(const fs::path& folder) {
  DataConfig made;
  made.source = folder.string();
  made.image_size = 8;
  return made;
}

std::vector<std::string> names(const ImageSet& set) {
  std::vector<std::string> list;
  for (const fs::path& path : set.files) list.push_back(path.parent_path().filename() / path.filename());
  return list;
}

TEST(ImageFolder, NumbersClassesByNameAndSplitsByFraction) {
  const TempDir folder;
  fill(folder.path(), 3);
  const Dataset dataset = load_dataset(config(folder.path()), 1);
  EXPECT_THAT(names(dataset.images.train),
              ElementsAre("apes/imagea.JPEG", "apes/imageb.JPEG", "cats/imagea.jpg", "cats/imageb.jpg"));
  EXPECT_THAT(dataset.images.train.labels, ElementsAre(0, 0, 1, 1));
  EXPECT_THAT(names(dataset.images.test), ElementsAre("apes/imagec.JPEG", "cats/imagec.jpg"));
  EXPECT_EQ(dataset.images.train.width, 8U);
  EXPECT_EQ(dataset.images.train.channels, 3U);
  EXPECT_THAT(dataset.notes, IsEmpty());
}

TEST(ImageFolder, TakesTheTestSetOfItsFolder) {
  const TempDir folder;
  fill(folder / "train", 2);
  put(folder / "val" / "cats" / "x.png.jpg", jpeg(1));
  const Dataset dataset = load_dataset(config(folder.path()), 1);
  EXPECT_THAT(dataset.images.train, ::testing::Property(&ImageSet::size, 4U));
  EXPECT_THAT(dataset.images.test.labels, ElementsAre(1));
}

TEST(ImageFolder, RefusesAClassThatOnlyTheTestSetHas) {
  const TempDir folder;
  fill(folder / "train", 1);
  put(folder / "test" / "dogs" / "x.jpg", jpeg(1));
  EXPECT_THAT(message_of<FormatError>([&] { (void)load_dataset(config(folder.path()), 1); }),
              AllOf(HasSubstr("dogs"), HasSubstr("training set does not have")));
}

TEST(ImageFolder, CountsFilesOfOtherNames) {
  const TempDir folder;
  fill(folder.path(), 3);
  put(folder / "cats" / "readme.txt", "x");
  EXPECT_THAT(load_dataset(config(folder.path()), 1).notes, ElementsAre(HasSubstr("1 files that are no")));
}

TEST(ImageFolder, RefusesAFolderWithoutImages) {
  const TempDir folder;
  fs::create_directory(folder / "empty");
  EXPECT_THAT(message_of<FormatError>([&] { (void)load_dataset(config(folder.path()), 1); }),
              HasSubstr("no image in it"));
}

/// Thirty damaged files among good ones: cut short, empty, text, and a PNG's header alone.
void damage(const fs::path& folder) {
  const std::string whole = jpeg(3);
  for (int i = 0; i < 30; ++i) {
    const std::string bad[] = {whole.substr(0, whole.size() / 2), "", "no image", "\x89PNG\r\n\x1a\n"};
    put(folder / "cats" / ("bad" + std::to_string(i) + ".jpg"), bad[i % 4]);
  }
}

TEST(ImageFolder, LeavesDamagedFilesOutAndListsThem) {
  const TempDir folder;
  fill(folder.path(), 4);
  const Dataset whole = load_dataset(config(folder.path()), 1);
  damage(folder.path());
  DataConfig wanted = config(folder.path());
  for (const std::uint64_t workers : {0U, 1U, 8U}) {
    wanted.workers = workers;
    const Dataset dataset = load_dataset(wanted, 1);
    EXPECT_EQ(dataset.images.train, whole.images.train);
    EXPECT_EQ(dataset.images.test, whole.images.test);
    ASSERT_THAT(dataset.notes, SizeIs(31));
    EXPECT_THAT(dataset.notes[0], HasSubstr("30 of 38 image files are damaged"));
    for (int i = 0; i < 30; ++i) {
      const std::string name = "bad" + std::to_string(i) + ".jpg: ";
      EXPECT_EQ(
          std::ranges::count_if(dataset.notes, [&](const auto& note) { return note.find(name) != std::string::npos; }),
          1)
          << name;
    }
  }
}

TEST(ImageFolder, EndsWhereMoreFilesAreDamagedThanAreAllowed) {
  const TempDir folder;
  fill(folder.path(), 4);
  damage(folder.path());
  DataConfig wanted = config(folder.path());
  wanted.damaged_max = 29;
  EXPECT_THAT(message_of<FormatError>([&] { (void)load_dataset(wanted, 1); }),
              AllOf(HasSubstr("30 of 38"), HasSubstr("data.damaged_max allows 29"), HasSubstr("bad0.jpg")));
  wanted.damaged_max = 30;
  EXPECT_NO_THROW((void)load_dataset(wanted, 1));
}

TEST(ImageFolder, NamesADamagedFileThatWasNotCheckedWhenItIsRead) {
  const TempDir folder;
  fill(folder.path(), 3);
  put(folder / "apes" / "aaa.jpg", jpeg(3).substr(0, 400));
  DataConfig wanted = config(folder.path());
  wanted.check = false;
  const Dataset dataset = load_dataset(wanted, 1);
  const ViewMaker views(dataset.images.train, wanted, Method::kSimClr);
  std::vector<float> out(dataset.images.train.image_numel());
  EXPECT_THAT(message_of<FormatError>([&] { views.plain(0, out); }), AllOf(HasSubstr("aaa.jpg"), HasSubstr("damaged")));
}

TEST(ImageFolder, ShowsTheMiddleOfAFileInColourOrGrey) {
  const TempDir folder;
  fill(folder.path(), 3);
  const Dataset colour = load_dataset(config(folder.path()), 1);
  std::vector<float> out(colour.images.train.image_numel());
  ViewMaker(colour.images.train, {}, Method::kSimClr).plain(3, out);
  ASSERT_EQ(out.size(), 192U);
  EXPECT_NEAR(out[0], 200.0 / 255.0, 0.02);
  EXPECT_NEAR(out[64], 0.0, 0.02);
  DataConfig wanted = config(folder.path());
  wanted.grey = true;
  const Dataset grey = load_dataset(wanted, 1);
  ASSERT_EQ(grey.images.train.image_numel(), 64U);
  ViewMaker(grey.images.train, {}, Method::kSimClr).plain(3, std::span(out).first(64));
  EXPECT_NEAR(out[0], 0.299 * 200.0 / 255.0, 0.02);
}

}  // namespace
}  // namespace spillway::app::image_folder_test
