#include <spillway/app/data/dataset.hpp>

#include <cstdlib>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <spillway/offload/error.hpp>
#include <support/temp_dir.hpp>

#include "image_files.hpp"
#include "support/errors.hpp"

namespace spillway::app::dataset_test {
namespace {

using test::gzipped;
using test::idx_bytes;
using test::write_file;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr std::string_view kCsv = "0,1,2,3,0\n1,1,2,3,0\n2,1,2,3,0\n3,1,2,3,0\n4,1,2,3,0\n";
const std::string kImages = idx_bytes({2, 1, 2}, "\x01\x02\x03\x04");
const std::string kLabels = idx_bytes({2}, std::string_view("\x00\x00", 2));

Dataset load(const std::filesystem::path& source, double train_fraction = 0.8) {
  return load_dataset({.source = source.string(), .train_fraction = train_fraction}, 1);
}

TEST(Dataset, LoadsTheBundledDigits) {
  const Dataset digits = load("digits");
  EXPECT_EQ(digits.images.train.size() + digits.images.test.size(), 1797U);
  EXPECT_EQ(digits.images.train.width, 8U);
  EXPECT_EQ(digits.images.train.peak, 16);
  EXPECT_EQ(class_count(digits.images.test), 10U);
  EXPECT_THAT(digits.notes, IsEmpty());
}

TEST(Dataset, TakesTheDigitsForMnistWhereThatIsNotInTheCacheAndSaysSo) {
  const test::TempDir cache;
  DataFolders folders = default_data_folders();
  folders.cache = cache.path();
  const Dataset dataset = load_dataset({.source = "mnist5k"}, 1, folders);
  EXPECT_EQ(dataset.name, "digits");
  EXPECT_THAT(dataset.notes,
              ElementsAre(AllOf(HasSubstr((cache / "data/mnist_5k.csv.gz").string()), HasSubstr("digits"))));
}

TEST(Dataset, TakesMnistFromTheCache) {
  const test::TempDir cache;
  std::filesystem::create_directory(cache / "data");
  write_file(cache / "data/mnist_5k.csv.gz", gzipped(kCsv));
  const Dataset dataset = load_dataset({.source = "mnist5k"}, 1, {.cache = cache.path(), .bundled = {}});
  EXPECT_EQ(dataset.name, "mnist5k");
  EXPECT_EQ(dataset.images.train.size(), 4U);
  EXPECT_THAT(dataset.notes, IsEmpty());
}

TEST(Dataset, NamesTheFoldersInWhichItLookedForTheDigits) {
  const test::TempDir folder;
  EXPECT_THAT(message_of<IoError>(
                  [&] { (void)load_dataset({.source = "digits"}, 1, {.cache = {}, .bundled = {folder / "share"}}); }),
              AllOf(HasSubstr("digits.csv.gz"), HasSubstr((folder / "share").string())));
}

TEST(Dataset, LoadsTheUsersCsvPackedOrNot) {
  const test::TempDir folder;
  write_file(folder / "a.csv", kCsv);
  write_file(folder / "b.csv.gz", gzipped(kCsv));
  const Dataset plain = load(folder / "a.csv");
  EXPECT_EQ(plain.images.train.size(), 4U);
  EXPECT_EQ(plain.images.test.size(), 1U);
  EXPECT_EQ(load(folder / "b.csv.gz").images.train, plain.images.train);
}

TEST(Dataset, FindsTheLabelsOfAnIdxFileBesideIt) {
  const test::TempDir folder;
  write_file(folder / "train-images-idx3-ubyte", kImages);
  write_file(folder / "train-labels-idx1-ubyte.gz", gzipped(kLabels));
  const Dataset dataset = load(folder / "train-images-idx3-ubyte", 0.5);
  EXPECT_EQ(dataset.images.train.size(), 1U);
  EXPECT_EQ(dataset.images.test.size(), 1U);
}

TEST(Dataset, TakesTheTestSetOfTheMnistFamilyAndOnePeakForBoth) {
  const test::TempDir folder;
  write_file(folder / "train-images-idx3-ubyte.gz", gzipped(kImages));
  write_file(folder / "train-labels-idx1-ubyte.gz", gzipped(kLabels));
  write_file(folder / "t10k-images-idx3-ubyte.gz", gzipped(idx_bytes({1, 1, 2}, "\x09\x05")));
  write_file(folder / "t10k-labels-idx1-ubyte.gz", gzipped(idx_bytes({1}, "\x01")));
  const Dataset dataset = load(folder.path());
  EXPECT_EQ(dataset.images.train.size(), 2U);
  EXPECT_THAT(dataset.images.test.pixels, ElementsAre(9, 5));
  EXPECT_EQ(dataset.images.train.peak, 9);
  EXPECT_EQ(dataset.images.test.peak, 9);
}

TEST(Dataset, RefusesATestSetOfAnotherGeometry) {
  const test::TempDir folder;
  write_file(folder / "train-images-idx3-ubyte", kImages);
  write_file(folder / "train-labels-idx1-ubyte", kLabels);
  write_file(folder / "t10k-images-idx3-ubyte", idx_bytes({1, 1, 1}, "\x09"));
  write_file(folder / "t10k-labels-idx1-ubyte", idx_bytes({1}, "\x01"));
  EXPECT_THAT(message_of<FormatError>([&] { (void)load(folder.path()); }),
              AllOf(HasSubstr("t10k"), HasSubstr("1 x 1"), HasSubstr("2 x 1")));
}

TEST(Dataset, NamesAPathThatIsMissing) {
  const test::TempDir folder;
  const std::string missing = (folder / "no.csv").string();
  EXPECT_THAT(message_of<IoError>([&] { (void)load(missing); }),
              AllOf(HasSubstr(missing), HasSubstr("mnist5k, digits, synthetic")));
  write_file(folder / "train-images-idx3-ubyte", kImages);
  EXPECT_THAT(message_of<IoError>([&] { (void)load(folder.path()); }), HasSubstr("train-labels-idx1-ubyte"));
}

TEST(Dataset, RefusesAFolderWithoutImages) {
  const test::TempDir folder;
  EXPECT_THAT(message_of<FormatError>([&] { (void)load(folder.path()); }),
              AllOf(HasSubstr("neither train-images-idx3-ubyte"), HasSubstr("sub-folders")));
}

TEST(Dataset, NamesATruncatedFileByItsPath) {
  const test::TempDir folder;
  write_file(folder / "cut.csv.gz", gzipped(kCsv).substr(0, 30));
  EXPECT_THAT(message_of<FormatError>([&] { (void)load(folder / "cut.csv.gz"); }),
              AllOf(HasSubstr("cut.csv.gz"), HasSubstr("cut short")));
}

TEST(Dataset, RefusesASplitThatLeavesNothingToTestOn) {
  const test::TempDir folder;
  write_file(folder / "a.csv", "1,0\n");
  EXPECT_THAT(message_of<FormatError>([&] { (void)load(folder / "a.csv"); }),
              AllOf(HasSubstr("no image left to test on"), HasSubstr("train_fraction")));
}

/// Sets an environment variable and puts back what was there.
class ScopedVariable {
 public:
  ScopedVariable(const char* name, const char* value) : name_(name) {
    const char* old = std::getenv(name);
    had_ = old != nullptr;
    old_ = had_ ? old : "";
    setenv(name, value, 1);
  }
  ScopedVariable(const ScopedVariable&) = delete;
  ScopedVariable& operator=(const ScopedVariable&) = delete;
  ~ScopedVariable() { had_ ? setenv(name_, old_.c_str(), 1) : unsetenv(name_); }

 private:
  const char* name_;
  bool had_ = false;
  std::string old_;
};

TEST(DataFolders, AreThoseOfTheEnvironmentInOrder) {
  const ScopedVariable home("HOME", "/h");
  const ScopedVariable caches("XDG_CACHE_HOME", "");
  const ScopedVariable own("SPILLWAY_CACHE", "");
  EXPECT_EQ(default_data_folders().cache, "/h/.cache/spillway");
  const ScopedVariable given_caches("XDG_CACHE_HOME", "/x");
  EXPECT_EQ(default_data_folders().cache, "/x/spillway");
  const ScopedVariable given_own("SPILLWAY_CACHE", "/s");
  EXPECT_EQ(default_data_folders().cache, "/s");
}

}  // namespace
}  // namespace spillway::app::dataset_test
