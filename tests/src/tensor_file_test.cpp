#include <spillway/app/checkpoint/tensor_file.hpp>

#include <cstring>
#include <fstream>
#include <string>
#include <vector>

#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <spillway/offload/error.hpp>
#include <support/temp_dir.hpp>

#include "support/errors.hpp"

namespace spillway::app::tensor_file_test {
namespace {

using ::testing::HasSubstr;

TensorEntry entry(const std::string& name, const at::Tensor& tensor) {
  return {name, tensor.scalar_type(), tensor.sizes().vec()};
}

void write_raw(const std::filesystem::path& path, const std::string& header, std::size_t data_bytes) {
  std::string text(8, '\0');
  const std::uint64_t size = header.size();
  std::memcpy(text.data(), &size, 8);
  std::ofstream(path, std::ios::binary) << text << header << std::string(data_bytes, 'd');
}

std::string refusal(const std::string& header, std::size_t data_bytes) {
  const test::TempDir folder;
  write_raw(folder / "f", header, data_bytes);
  return message_of<FormatError>([&] { const TensorFileReader reader(folder / "f"); });
}

TEST(TensorFile, GivesBackEveryDtypeAndShape) {
  const test::TempDir folder;
  std::vector<std::pair<std::string, at::Tensor>> tensors;
  for (const at::ScalarType dtype :
       {at::kFloat, at::kDouble, at::kHalf, at::kBFloat16, at::kLong, at::kInt, at::kShort, at::kChar, at::kByte}) {
    tensors.emplace_back(std::string("t.") + c10::toString(dtype), at::arange(12, dtype).reshape({3, 4}));
  }
  tensors.emplace_back("scalar", at::arange(1, at::kFloat).reshape({}));
  tensors.emplace_back("none", at::zeros({0, 5}));
  tensors.emplace_back("transposed", at::arange(6, at::kFloat).reshape({2, 3}).t());
  std::vector<TensorEntry> entries;
  for (const auto& [name, tensor] : tensors) entries.push_back(entry(name, tensor));
  TensorFileWriter writer(folder / "f", entries);
  for (const auto& [name, tensor] : tensors) writer.append(tensor);
  const FileDigest digest = writer.finish();
  EXPECT_EQ(find_damage(folder / "f", digest), std::nullopt);
  ASSERT_EQ(digest.parts.size(), tensors.size() + 1) << "the header, and a part for each";
  EXPECT_EQ(digest.parts.back().name, "transposed");

  const TensorFileReader reader(folder / "f");
  ASSERT_EQ(reader.entries().size(), tensors.size());
  for (const auto& [name, tensor] : tensors) {
    const at::Tensor read = reader.read(name);
    EXPECT_EQ(read.scalar_type(), tensor.scalar_type()) << name;
    EXPECT_TRUE(at::equal(read, tensor)) << name;
  }
  EXPECT_FALSE(reader.read("absent").defined());
}

TEST(TensorFile, TakesATensorInPiecesAndGivesRowsOfIt) {
  const test::TempDir folder;
  const at::Tensor rows = at::arange(40, at::kFloat).reshape({10, 4});
  TensorFileWriter writer(folder / "f", {entry("rows", rows), entry("after", rows)});
  for (const auto& [first, count] : {std::pair{0, 3}, {3, 6}, {9, 1}}) writer.append(rows.narrow(0, first, count));
  writer.append(rows + 1);
  (void)writer.finish();
  const TensorFileReader reader(folder / "f");
  EXPECT_TRUE(at::equal(reader.read_rows("rows", 4, 5), rows.narrow(0, 4, 5)));
  EXPECT_TRUE(at::equal(reader.read("after"), rows + 1));
}

TEST(TensorFile, IsTheFormatThatOthersRead) {
  const test::TempDir folder;
  write_raw(folder / "f",
            R"({"__metadata__":{"format":"pt"},"b":{"dtype":"U8","shape":[2],"data_offsets":[4,6]},)"
            R"("a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})",
            6);
  const TensorFileReader reader(folder / "f");
  EXPECT_EQ(reader.read("a").numel(), 1);
  EXPECT_EQ(reader.read("b")[1].item<std::uint8_t>(), 'd');
}

TEST(TensorFile, RefusesHeadersThatLie) {
  EXPECT_THAT(refusal(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,4]}})", 4), HasSubstr("not those of its"));
  EXPECT_THAT(refusal(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})", 4),
              HasSubstr("are not in the file"));
  EXPECT_THAT(refusal(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})", 5), HasSubstr("do not fill it"));
  EXPECT_THAT(refusal(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},)"
                      R"("b":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})",
                      8),
              HasSubstr("begin where those before them end"));
  EXPECT_THAT(refusal(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},)"
                      R"("b":{"dtype":"F32","shape":[1],"data_offsets":[6,10]}})",
                      10),
              HasSubstr("begin where those before them end"));
  EXPECT_THAT(refusal(R"({"a":{"dtype":"F31","shape":[1],"data_offsets":[0,4]}})", 4), HasSubstr("entry a"));
  EXPECT_THAT(refusal(R"({"a":{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}})", 4), HasSubstr("entry a"));
  EXPECT_THAT(refusal(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},)"
                      R"("a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})",
                      8),
              HasSubstr("given twice"));
  EXPECT_THAT(refusal("[]", 0), HasSubstr("no object"));
  EXPECT_THAT(refusal("{", 0), HasSubstr("JSON"));
  EXPECT_THAT(refusal(R"({"a":{"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,4]}})", 4),
              HasSubstr("larger than any file"));
  std::string bomb;
  for (int i = 0; i < 30'000; ++i) bomb += "0,";
  EXPECT_THAT(refusal(R"({"a":[)" + bomb + "0]}", 0), HasSubstr("values")) << "a header that needs much more memory";
}

TEST(TensorFile, RefusesALengthThatTheFileDoesNotHave) {
  const test::TempDir folder;
  std::ofstream(folder / "f", std::ios::binary) << std::string(7, 'x');
  EXPECT_THROW(TensorFileReader(folder / "f"), FormatError);
  std::ofstream(folder / "f", std::ios::binary) << std::string(16, '\x7f');  // A header of 9e18 bytes.
  EXPECT_THAT(message_of<FormatError>([&] { const TensorFileReader reader(folder / "f"); }), HasSubstr("header"));
}

TEST(TensorFile, RefusesTwoTensorsOfOneName) {
  const test::TempDir folder;
  const at::Tensor tensor = at::zeros({1});
  EXPECT_THAT(message_of<Error>([&] {
                TensorFileWriter(folder / "f", {entry("a", tensor), entry("a", tensor)});
              }),
              HasSubstr("two tensors are called a"));
}

}  // namespace
}  // namespace spillway::app::tensor_file_test
