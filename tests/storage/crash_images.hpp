#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "storage/recorded_calls.hpp"
#include "support/property.hpp"

namespace spillway::test {

/// Which syncs count, for the controls.
struct SyncsThatCount {
  bool files = true;
  bool folders = true;
};

/// A disk as calls leave it, with all that a power cut may leave of it: of each file's bytes what was there when it was
/// last synced or any state since, the last write whole or cut; of each folder's entries likewise, independently of the
/// others. Only a sync of a file makes its bytes sure, and only one of a folder its entries.
class CrashImages {
 public:
  CrashImages(std::filesystem::path root, SyncsThatCount syncs);
  ~CrashImages();
  CrashImages(const CrashImages&) = delete;
  CrashImages& operator=(const CrashImages&) = delete;

  void apply(const FileCall& call);
  /// What a power cut may leave. Variant 0: everything; 1: what is sure; 2: sure bytes, all entries; 3: all bytes, sure
  /// entries; others: any state of anything, by `random`.
  void write_image(const std::filesystem::path& folder, std::uint64_t variant, Random& random) const;

 private:
  struct Node;
  using Entries = std::map<std::string, std::shared_ptr<Node>>;
  struct Node {
    bool folder = false;
    std::vector<std::string> bytes = {{}};  // Since the last sync, which left the first.
    std::vector<Entries> entries = {{}};
  };
  Node& folder_of(const std::filesystem::path& path);
  void write_node(const Node& node, const std::filesystem::path& path, std::uint64_t variant, Random& random) const;

  std::filesystem::path root_;
  SyncsThatCount syncs_;
  std::shared_ptr<Node> top_;
};

}  // namespace spillway::test
