// A small checkpoint, of which every byte is changed and which is cut at every length: nothing of it is ever used.
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <spillway/app/checkpoint/checkpoint_folder.hpp>
#include <spillway/app/checkpoint/tensor_header.hpp>
#include <support/temp_dir.hpp>

namespace spillway::app::checkpoint_damage_test {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

const std::vector<StoredTensor> kTensors = {
    {.name = "encoder.weight", .dtype = "F32", .sizes = {3, 2}},
    {.name = "bank.values", .dtype = "F16", .sizes = {5, 2}},
    {.name = "bank.labels", .dtype = "I64", .sizes = {3}},
};

void write_checkpoint(const fs::path& root, std::uint64_t step) {
  CheckpointWriter writer(root, step);
  DurableFile file(writer.folder() / "rank_0.safetensors");
  file.write(tensor_header_text(kTensors, "the file"));
  file.end_part("the header");
  for (const StoredTensor& tensor : kTensors) {
    file.write(std::string(bytes_of(tensor), static_cast<char>('a' + step)));
    file.end_part(tensor.name);
  }
  DurableFile other(writer.folder() / "rank_0.other");
  other.write("counters");
  Manifest manifest;
  manifest.step = step;
  manifest.files = {{"rank_0.safetensors", file.finish()}, {"rank_0.other", other.finish()}};
  manifest.config = Json::Object{{"seed", std::uint64_t{3}}};
  manifest.progress = Json::Object{{"loss", 0.25}};
  writer.commit(manifest);
}

std::string content(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

void overwrite(const fs::path& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
}

/// The part of the tensors' file that has this byte.
std::string part_at(std::uint64_t byte) {
  std::uint64_t end = tensor_header_text(kTensors, "the file").size();
  if (byte < end) return "the header";
  for (const StoredTensor& tensor : kTensors) {
    end += bytes_of(tensor);
    if (byte < end) return tensor.name;
  }
  return "nothing";
}

class Damage : public ::testing::Test {
 protected:
  Damage() {
    for (const std::uint64_t step : {1, 2}) write_checkpoint(root_, step);
  }

  /// Gives the newer one's file these bytes, for a moment: the older one is taken, and a line says which file of which
  /// checkpoint is why, and names `part`.
  void expect_refused(const std::string& name, const std::string& bytes, const std::string& part) {
    const fs::path path = root_ / "step_0000000002" / name;
    const std::string whole = content(path);
    overwrite(path, bytes);
    std::vector<std::string> notes;
    const auto found = newest_checkpoint(root_, [&](const std::string& note) { notes.push_back(note); });
    EXPECT_THAT(notes, ElementsAre(::testing::AllOf(HasSubstr("step_0000000002/" + name), HasSubstr(part))));
    ASSERT_TRUE(found.has_value());
    EXPECT_EQ(found->manifest.step, 1U);
    overwrite(path, whole);
  }

  test::TempDir folder_;
  fs::path root_ = folder_ / "checkpoints";
};

TEST_F(Damage, OfAnyByteOfAnyFileIsFoundAndNamed) {
  for (const char* const name : {"rank_0.safetensors", "rank_0.other", "manifest.json"}) {
    const std::string whole = content(root_ / "step_0000000002" / name);
    for (std::size_t at = 0; at < whole.size(); ++at) {
      for (const char change : {'\x01', '\x80', '\xFF'}) {
        std::string changed = whole;
        changed[at] = static_cast<char>(changed[at] ^ change);
        const std::string part = std::string(name) == "rank_0.safetensors" ? part_at(at) : "";
        ASSERT_NO_FATAL_FAILURE(expect_refused(name, changed, part)) << name << ", byte " << at;
      }
    }
  }
}

TEST_F(Damage, OfAnyLengthIsFoundAndNamed) {
  for (const char* const name : {"rank_0.safetensors", "rank_0.other", "manifest.json"}) {
    const std::string whole = content(root_ / "step_0000000002" / name);
    for (std::size_t length = 0; length < whole.size(); ++length) {
      const std::string part = std::string(name) == "rank_0.safetensors" ? part_at(length) : "";
      ASSERT_NO_FATAL_FAILURE(expect_refused(name, whole.substr(0, length), part)) << name << ", cut to " << length;
    }
    ASSERT_NO_FATAL_FAILURE(expect_refused(name, whole + '\0', ""));
  }
}

TEST_F(Damage, IsToldOfEveryFile) {
  const fs::path newer = root_ / "step_0000000002";
  fs::remove(newer / "rank_0.other");
  overwrite(newer / "rank_0.safetensors", content(root_ / "step_0000000001/rank_0.safetensors"));
  EXPECT_THAT(find_damages(newer, read_manifest(newer)),
              ElementsAre(HasSubstr("encoder.weight"), HasSubstr("rank_0.other")));
}

}  // namespace
}  // namespace spillway::app::checkpoint_damage_test
