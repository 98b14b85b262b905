#include <cstring>
#include <fstream>
#include <stdexcept>

#include <nlohmann/json.hpp>

#include <support/golden.hpp>

namespace spillway::test {

namespace {

std::vector<std::byte> read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  if (!file) throw std::runtime_error("cannot open golden file " + path);
  std::vector<std::byte> contents(static_cast<std::size_t>(file.tellg()));
  file.seekg(0);
  file.read(reinterpret_cast<char*>(contents.data()), static_cast<std::streamsize>(contents.size()));
  if (!file) throw std::runtime_error("cannot read golden file " + path);
  return contents;
}

}  // namespace

GoldenFile::GoldenFile(const std::filesystem::path& path) : path_(path.string()), contents_(read_file(path_)) {
  std::uint64_t header_bytes = 0;
  if (contents_.size() < sizeof header_bytes) throw std::runtime_error(path_ + ": shorter than its header length");
  std::memcpy(&header_bytes, contents_.data(), sizeof header_bytes);
  if (header_bytes > contents_.size() - sizeof header_bytes) throw std::runtime_error(path_ + ": header is cut off");
  const auto* header = reinterpret_cast<const char*>(contents_.data()) + sizeof header_bytes;
  const std::span<const std::byte> data = std::span(contents_).subspan(sizeof header_bytes + header_bytes);
  const nlohmann::json entries = nlohmann::json::parse(header, header + header_bytes);
  for (const auto& [name, entry] : entries.items()) {
    if (name == "__metadata__") continue;
    const auto [begin, end] = entry.at("data_offsets").get<std::pair<std::size_t, std::size_t>>();
    if (begin > end || end > data.size()) throw std::runtime_error(path_ + ": " + name + " lies outside the file");
    tensors_[name] = {entry.at("dtype"), entry.at("shape"), data.subspan(begin, end - begin)};
  }
}

GoldenFile GoldenFile::open(const std::string& name) {
  return GoldenFile(std::filesystem::path(SPILLWAY_GOLDEN_DIR) / (name + ".safetensors"));
}

const GoldenTensor& GoldenFile::at(const std::string& name) const {
  const auto found = tensors_.find(name);
  if (found == tensors_.end()) throw std::out_of_range(path_ + " has no tensor " + name);
  return found->second;
}

}  // namespace spillway::test
