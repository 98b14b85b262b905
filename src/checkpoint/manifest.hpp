#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <spillway/app/checkpoint/durable_file.hpp>
#include <spillway/app/config/json.hpp>

namespace spillway::app {

/// A file of a checkpoint.
struct CheckpointFile {
  std::string name;  ///< In the checkpoint's folder.
  FileDigest digest;
  bool operator==(const CheckpointFile&) const = default;
};

/// manifest.json of a checkpoint: what is in it. `config` and `progress` are the run's.
struct Manifest {
  std::uint64_t step = 0;        ///< Optimizer steps that were done.
  std::uint64_t world_size = 1;  ///< Ranks that wrote it.
  std::vector<CheckpointFile> files;
  Json config;    ///< An object.
  Json progress;  ///< An object.
  bool operator==(const Manifest&) const = default;
};

/// The text of a manifest.json, whose last line is a hash of what stands before it.
[[nodiscard]] std::string manifest_text(const Manifest& manifest);

/// Reads what manifest_text made, or what version 1 wrote, which had neither the hash nor parts of files.
/// @param label  Names the text in messages.
/// @throws Error where a byte of it is not as it was written, for another version, for names of files that are not
/// plain ones or stand there twice, and for parts that are not inside of their file.
[[nodiscard]] Manifest parse_manifest(std::string_view text, const std::string& label);

/// The larger texts are none of manifests.
inline constexpr std::uint64_t kManifestMaxBytes = 16U << 20U;

/// What is in a manifest about a file, for those who tell one another about them.
[[nodiscard]] Json to_json(const CheckpointFile& file);
/// @throws as parse_manifest.
[[nodiscard]] CheckpointFile checkpoint_file_of(const Json& json, const std::string& label);

}  // namespace spillway::app
