// Replays the inputs that are kept in tests/fuzz/corpus. A file whose name begins with "ok-" must be accepted, one that
// begins with "bad-" refused; what a fuzzer added may be either.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "promises.hpp"

namespace spillway::test::corpus_test {
namespace {

namespace fs = std::filesystem;

std::vector<fs::path> inputs_of(const std::string& fuzzer) {
  const fs::path folder = fs::path(SPILLWAY_CORPUS) / fuzzer;
  std::vector<fs::path> paths(fs::directory_iterator(folder), {});
  std::ranges::sort(paths);
  return paths;
}

std::string content(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

void replay(const std::string& fuzzer, bool (*keeps_promise)(std::span<const std::byte>)) {
  bool any_accepted = false;
  bool any_refused = false;
  for (const fs::path& path : inputs_of(fuzzer)) {
    SCOPED_TRACE(path.string());
    const std::string input = content(path);
    bool accepted = false;
    EXPECT_NO_THROW(accepted = keeps_promise(std::as_bytes(std::span(input.data(), input.size()))));
    const std::string name = path.filename().string();
    EXPECT_TRUE(accepted || !name.starts_with("ok-"));
    EXPECT_TRUE(!accepted || !name.starts_with("bad-"));
    any_accepted = any_accepted || accepted;
    any_refused = any_refused || !accepted;
  }
  EXPECT_TRUE(any_accepted && any_refused) << "the corpus of " << fuzzer << " has inputs of both kinds";
}

TEST(Corpus, OfConfigurationsKeepsThePromise) { replay("config_fuzzer", keeps_config_promise); }
TEST(Corpus, OfCsvFilesKeepsThePromise) { replay("csv_fuzzer", keeps_csv_promise); }
TEST(Corpus, OfGzipFilesKeepsThePromise) { replay("gzip_fuzzer", keeps_gzip_promise); }
TEST(Corpus, OfIdxFilesKeepsThePromise) { replay("idx_fuzzer", keeps_idx_promise); }
TEST(Corpus, OfImageFilesKeepsThePromise) { replay("image_fuzzer", keeps_image_promise); }
TEST(Corpus, OfManifestsKeepsThePromise) { replay("manifest_fuzzer", keeps_manifest_promise); }
TEST(Corpus, OfTensorFilesKeepsThePromise) { replay("tensors_fuzzer", keeps_tensors_promise); }

}  // namespace
}  // namespace spillway::test::corpus_test
