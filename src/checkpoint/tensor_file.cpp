#include <spillway/app/checkpoint/tensor_file.hpp>

#include <algorithm>
#include <array>
#include <span>
#include <utility>

#include <ATen/ops/empty.h>

#include <spillway/offload/check.hpp>
#include <spillway/offload/error.hpp>

namespace spillway::app {
namespace {

struct DtypeName {
  at::ScalarType dtype;
  std::string_view name;
};
constexpr std::array kDtypes = {
    DtypeName{at::kFloat, "F32"},     DtypeName{at::kDouble, "F64"}, DtypeName{at::kHalf, "F16"},
    DtypeName{at::kBFloat16, "BF16"}, DtypeName{at::kLong, "I64"},   DtypeName{at::kInt, "I32"},
    DtypeName{at::kShort, "I16"},     DtypeName{at::kChar, "I8"},    DtypeName{at::kByte, "U8"},
    DtypeName{at::kBool, "BOOL"},
};

std::string_view name_of(const TensorEntry& entry) {
  const auto found = std::ranges::find(kDtypes, entry.dtype, &DtypeName::dtype);
  if (found == kDtypes.end()) {
    throw FormatError("tensor " + entry.name + ": safetensors files have no " + c10::toString(entry.dtype));
  }
  return found->name;
}

StoredTensor stored(const TensorEntry& entry) {
  return {.name = entry.name, .dtype = std::string(name_of(entry)), .sizes = entry.sizes};
}

std::string header_text(const std::vector<TensorEntry>& entries, const std::string& label) {
  std::vector<StoredTensor> tensors;
  for (const TensorEntry& entry : entries) tensors.push_back(stored(entry));
  return tensor_header_text(tensors, label);
}

}  // namespace

std::uint64_t TensorEntry::bytes() const { return bytes_of(stored(*this)); }

TensorFileWriter::TensorFileWriter(const std::filesystem::path& path, std::vector<TensorEntry> entries)
    : entries_(std::move(entries)), file_(path) {
  file_.write(header_text(entries_, path.string()));
  file_.end_part("the header");
}

void TensorFileWriter::pass_full_entries() {
  for (; current_ < entries_.size() && filled_ == entries_[current_].bytes(); ++current_, filled_ = 0) {
    file_.end_part(entries_[current_].name);
  }
}

void TensorFileWriter::append(const at::Tensor& values) {
  const at::Tensor plain = values.detach().contiguous();
  pass_full_entries();
  if (plain.nbytes() == 0) return;
  SPILLWAY_CHECK(current_ < entries_.size() && plain.scalar_type() == entries_[current_].dtype &&
                     filled_ + plain.nbytes() <= entries_[current_].bytes(),
                 "the values are of another tensor");
  file_.write({static_cast<const std::byte*>(plain.const_data_ptr()), plain.nbytes()});
  filled_ += plain.nbytes();
}

FileDigest TensorFileWriter::finish() {
  pass_full_entries();
  SPILLWAY_CHECK(current_ == entries_.size(), "a tensor has no values yet");
  return file_.finish();
}

TensorFileReader::TensorFileReader(std::filesystem::path path) : file_(std::move(path)) {
  const TensorHeader header = read_tensor_header(file_);
  for (const StoredTensor& tensor : header.tensors) {
    const auto dtype = std::ranges::find(kDtypes, std::string_view(tensor.dtype), &DtypeName::name);
    SPILLWAY_CHECK(dtype != kDtypes.end(), "the header has known dtypes");
    places_.emplace(tensor.name, Place{entries_.size(), header.data_start + tensor.begin});
    entries_.push_back({tensor.name, dtype->dtype, tensor.sizes});
  }
}

const TensorEntry* TensorFileReader::find(std::string_view name) const {
  const auto found = places_.find(std::string(name));
  return found == places_.end() ? nullptr : &entries_[found->second.entry];
}

at::Tensor TensorFileReader::read(std::string_view name) const {
  const auto found = places_.find(std::string(name));
  if (found == places_.end()) return {};
  const TensorEntry& entry = entries_[found->second.entry];
  return read_at(entry, entry.sizes, found->second.offset);
}

at::Tensor TensorFileReader::read_rows(std::string_view name, std::int64_t first, std::int64_t count) const {
  const auto found = places_.find(std::string(name));
  SPILLWAY_CHECK(found != places_.end(), "the tensor is in the file");
  const TensorEntry& entry = entries_[found->second.entry];
  SPILLWAY_CHECK(first >= 0 && count >= 0 && first + count <= entry.sizes.at(0), "the tensor has these rows");
  std::vector<std::int64_t> sizes = entry.sizes;
  const std::uint64_t row_bytes = sizes[0] == 0 ? 0 : entry.bytes() / static_cast<std::uint64_t>(sizes[0]);
  sizes[0] = count;
  return read_at(entry, std::move(sizes), found->second.offset + static_cast<std::uint64_t>(first) * row_bytes);
}

at::Tensor TensorFileReader::read_elements(std::string_view name, std::int64_t first, std::int64_t count) const {
  const auto found = places_.find(std::string(name));
  SPILLWAY_CHECK(found != places_.end(), "the tensor is in the file");
  const TensorEntry& entry = entries_[found->second.entry];
  const std::uint64_t size = c10::elementSize(entry.dtype);
  SPILLWAY_CHECK(first >= 0 && count >= 0 && static_cast<std::uint64_t>(first + count) <= entry.bytes() / size,
                 "the tensor has these elements");
  return read_at(entry, {count}, found->second.offset + static_cast<std::uint64_t>(first) * size);
}

at::Tensor TensorFileReader::read_at(const TensorEntry& like, std::vector<std::int64_t> sizes,
                                     std::uint64_t offset) const {
  at::Tensor tensor = at::empty(sizes, at::TensorOptions(like.dtype));
  file_.read({static_cast<std::byte*>(tensor.mutable_data_ptr()), tensor.nbytes()}, offset);
  return tensor;
}

}  // namespace spillway::app
