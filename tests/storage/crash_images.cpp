#include "storage/crash_images.hpp"

#include <fstream>
#include <stdexcept>
#include <utility>

namespace spillway::test {
namespace {

namespace fs = std::filesystem;
using Kind = FileCall::Kind;

/// Which of `states` an image has: the newest, the sure one, or any.
std::size_t chosen(std::size_t states, bool newest, bool sure, Random& random) {
  if (newest) return states - 1;
  return sure ? 0 : static_cast<std::size_t>(random.below(states));
}

}  // namespace

CrashImages::CrashImages(fs::path root, SyncsThatCount syncs)
    : root_(std::move(root)), syncs_(syncs), top_(std::make_shared<Node>()) {
  top_->folder = true;
}

CrashImages::~CrashImages() = default;

CrashImages::Node& CrashImages::folder_of(const fs::path& path) {
  Node* node = top_.get();
  for (const fs::path& name : path.parent_path().lexically_relative(root_)) {
    if (name != ".") node = node->entries.back().at(name.string()).get();
  }
  return *node;
}

void CrashImages::apply(const FileCall& call) {
  if (call.kind == Kind::kSaved) return;
  const std::string name = call.path.filename().string();
  if (call.kind == Kind::kSyncFolder) {
    Node& node = call.path == root_ ? *top_ : *folder_of(call.path).entries.back().at(name);
    if (syncs_.folders) node.entries = {node.entries.back()};
    return;
  }
  Node& folder = folder_of(call.path);
  Entries entries = folder.entries.back();
  switch (call.kind) {
    case Kind::kCreate:
    case Kind::kMakeFolder:
      entries[name] = std::make_shared<Node>();
      entries[name]->folder = call.kind == Kind::kMakeFolder;
      break;
    case Kind::kWrite:
      entries.at(name)->bytes.push_back(entries.at(name)->bytes.back() + call.bytes);
      return;
    case Kind::kSyncFile:
      if (syncs_.files) entries.at(name)->bytes = {entries.at(name)->bytes.back()};
      return;
    case Kind::kRename:
    case Kind::kExchange: {
      if (&folder_of(call.to) != &folder) throw std::logic_error("a rename from one folder to another");
      const std::string to = call.to.filename().string();
      const std::shared_ptr<Node> moved = entries.at(name);
      if (call.kind == Kind::kExchange) {
        entries[name] = entries.at(to);
      } else {
        entries.erase(name);
      }
      entries[to] = moved;
      break;
    }
    case Kind::kRemove:
      entries.erase(name);
      break;
    case Kind::kSyncFolder:
    case Kind::kSaved:
      return;
  }
  folder.entries.push_back(std::move(entries));
}

void CrashImages::write_image(const fs::path& folder, std::uint64_t variant, Random& random) const {
  write_node(*top_, folder, variant, random);
}

void CrashImages::write_node(const Node& node, const fs::path& path, std::uint64_t variant, Random& random) const {
  if (node.folder) {
    fs::create_directory(path);
    const bool newest = variant == 0 || variant == 2;
    const Entries& entries = node.entries.at(chosen(node.entries.size(), newest, variant == 1 || variant == 3, random));
    for (const auto& [name, child] : entries) write_node(*child, path / name, variant, random);
    return;
  }
  const bool newest = variant == 0 || variant == 3;
  const std::size_t state = chosen(node.bytes.size(), newest, variant == 1 || variant == 2, random);
  std::string bytes = node.bytes.at(state);
  if (state > 0 && variant > 3 && random.chance(1, 2)) {  // A part of its last write.
    const std::size_t before = node.bytes.at(state - 1).size();
    const std::size_t count = bytes.size() - before;
    const std::uint64_t cuts[] = {1, 512, random.below(count + 1)};
    bytes.resize(before + std::min<std::size_t>(count, static_cast<std::size_t>(random.pick<std::uint64_t>(cuts))));
    if (random.chance(1, 3)) bytes.resize(node.bytes.at(state).size());  // The size is there, the bytes are zeros.
  }
  std::ofstream(path, std::ios::binary) << bytes;
}

}  // namespace spillway::test
