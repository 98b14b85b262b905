#include <spillway/offload/tuning_cache.hpp>

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <thread>
#include <vector>

#include "support/temp_dir.hpp"

namespace spillway::offload::tuning_cache_test {
namespace {

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;
const DiskSetting kSetting{kMiB, 16, {.read = 2.5e9, .overwrite = 5e9}};

void expect_found(const TuningCache& cache, const std::string& key, const DiskSetting& wanted) {
  const auto found = cache.find(key);
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(found->block_bytes, wanted.block_bytes);
  EXPECT_EQ(found->queue_depth, wanted.queue_depth);
  EXPECT_EQ(found->rates.read, wanted.rates.read);
  EXPECT_EQ(found->rates.overwrite, wanted.rates.overwrite);
}

std::vector<std::filesystem::path> files_in(const std::filesystem::path& folder) {
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().filename() != "lock") {
      files.push_back(entry.path());
    }
  }
  return files;
}

std::string text_of(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

TEST(TuningCache, FindsWhatAnotherStoredUnderTheSameKeyOnly) {
  const test::TempDir folder;
  const std::string deep = (folder / "not" / "yet" / "there").string();
  EXPECT_FALSE(TuningCache(deep).find("a").has_value());
  TuningCache(deep).store("a", kSetting);
  expect_found(TuningCache(deep), "a", kSetting);
  EXPECT_FALSE(TuningCache(deep).find("b").has_value());
}

TEST(TuningCache, ReplacesInOneStepAndLeavesNothingBeside) {
  const test::TempDir folder;
  const TuningCache cache(folder.path().string());
  cache.store("a", kSetting);
  DiskSetting other = kSetting;
  other.queue_depth = 4;
  cache.store("a", other);
  expect_found(cache, "a", other);
  ASSERT_EQ(files_in(folder.path()).size(), 1U);
  struct stat status {};
  ASSERT_EQ(::stat(files_in(folder.path()).front().c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777U, 0600U);
}

TEST(TuningCache, PassesOverEveryDamagedOrShortenedFile) {
  const test::TempDir folder;
  const TuningCache cache(folder.path().string());
  cache.store("the key", kSetting);
  const std::filesystem::path file = files_in(folder.path()).at(0);
  const std::string good = text_of(file);
  const auto try_text = [&](const std::string& text) {
    std::ofstream(file, std::ios::binary | std::ios::trunc) << text;
    return cache.find("the key").has_value();
  };
  for (std::size_t length = 0; length < good.size(); ++length) {
    ASSERT_FALSE(try_text(good.substr(0, length))) << length;
  }
  for (std::size_t i = 0; i < good.size(); ++i) {
    std::string damaged = good;
    damaged[i] ^= 1;
    ASSERT_FALSE(try_text(damaged)) << i;
  }
  EXPECT_FALSE(try_text(good + good));
  EXPECT_FALSE(try_text(std::string(1 << 20, 'x')));
  EXPECT_TRUE(try_text(good)) << "the control";
}

TEST(TuningCache, RemembersNothingWhereItMayNotOrCan) {
  const test::TempDir folder;
  std::ofstream(folder / "file") << "text";
  for (const std::string& where : {std::string(), (folder / "file").string(), std::string("/proc/none")}) {
    const TuningCache cache(where);
    cache.store("a", kSetting);
    EXPECT_FALSE(cache.find("a").has_value());
    EXPECT_FALSE(cache.lock());
  }
}

TEST(TuningCache, StoresNoNonsense) {
  const test::TempDir folder;
  const TuningCache cache(folder.path().string());
  for (const DiskSetting& nonsense :
       {DiskSetting{0, 1, kSetting.rates}, DiskSetting{kMiB + 1, 1, kSetting.rates},
        DiskSetting{kMiB, 0, kSetting.rates}, DiskSetting{kMiB, 1, {}}, DiskSetting{kMiB, 9999, kSetting.rates}}) {
    cache.store("a", nonsense);
    EXPECT_FALSE(cache.find("a").has_value());
  }
}

TEST(TuningCache, ShowsAReaderTheFormerOrTheNewFile) {
  const test::TempDir folder;
  const TuningCache cache(folder.path().string());
  cache.store("a", kSetting);
  std::jthread writer([&](const std::stop_token& stop) {
    for (unsigned depth = 1; !stop.stop_requested(); depth = depth % 100 + 1) {
      DiskSetting setting = kSetting;
      setting.queue_depth = depth;
      cache.store("a", setting);
    }
  });
  for (int i = 0; i < 2000; ++i) {
    ASSERT_TRUE(cache.find("a").has_value());
  }
}

TEST(TuningCache, IsLockedByOneAtATime) {
  const test::TempDir folder;
  const TuningCache cache(folder.path().string());
  UniqueFd first = cache.lock();
  ASSERT_TRUE(first);
  std::jthread other([&] { EXPECT_TRUE(cache.lock()); });
  first = UniqueFd();
}

class Environment {
 public:
  explicit Environment(const char* name) : name_(name) {
    if (const char* value = std::getenv(name)) {
      former_ = value;
      had_ = true;
    }
  }
  ~Environment() { had_ ? ::setenv(name_, former_.c_str(), 1) : ::unsetenv(name_); }
  Environment(const Environment&) = delete;
  Environment& operator=(const Environment&) = delete;

 private:
  const char* name_;
  std::string former_;
  bool had_ = false;
};

TEST(UserCacheFolder, IsWhereTheUserKeepsCaches) {
  const Environment cache("XDG_CACHE_HOME");
  const Environment home("HOME");
  ::setenv("HOME", "/h", 1);
  ::setenv("XDG_CACHE_HOME", "/c", 1);
  EXPECT_EQ(user_cache_folder(), "/c/spillway");
  ::setenv("XDG_CACHE_HOME", "relative", 1);
  EXPECT_EQ(user_cache_folder(), "/h/.cache/spillway");
  ::unsetenv("XDG_CACHE_HOME");
  ::unsetenv("HOME");
  EXPECT_EQ(user_cache_folder(), "");
}

}  // namespace
}  // namespace spillway::offload::tuning_cache_test
