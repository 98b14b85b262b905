#include <spillway/app/checkpoint/manifest.hpp>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdio>
#include <limits>
#include <span>
#include <unordered_set>
#include <utility>

#include <spillway/app/config/key_names.hpp>
#include <spillway/offload/checksum.hpp>
#include <spillway/offload/error.hpp>

namespace spillway::app {
namespace {

constexpr std::uint64_t kVersion = 2;
constexpr std::uint64_t kUnsealed = 1;  // The version whose manifests had no hash of their own.
constexpr JsonLimits kLimits{.bytes = kManifestMaxBytes, .depth = 12, .members = 10'000, .values = 4'000'000};
constexpr std::uint64_t kMaxRanks = 1U << 16U;
constexpr std::size_t kMaxName = 100;

// The last line of a sealed manifest, around the hash of what is before it.
constexpr std::string_view kSeal = ",\n  \"xxh3\": \"";
constexpr std::string_view kSealed = "\"\n}\n";
constexpr std::size_t kHashDigits = 16;
constexpr std::string_view kEnd = "\n}";  // What a document that is not sealed yet ends with.

std::string hexadecimal(std::uint64_t value) {
  std::array<char, kHashDigits + 1> text{};
  std::snprintf(text.data(), text.size(), "%016llx", static_cast<unsigned long long>(value));
  return text.data();
}

[[noreturn]] void refuse(const std::string& label, const std::string& why) {
  throw Error(label + ": " + why + "; " + std::string(kTakeAnother));
}

template <typename T>
T member(const std::string& label, const Json& json, std::string_view key) {
  const Json* const found = json.find(key);
  const T* const value = found == nullptr ? nullptr : found->get_if<T>();
  if (value == nullptr) refuse(label, "it has no good `" + std::string(key) + "`");
  return *value;
}

std::uint64_t hash_of(const std::string& label, const Json& json) {
  const auto text = member<std::string>(label, json, "xxh3");
  std::uint64_t value = 0;
  const auto [rest, failure] = std::from_chars(text.data(), text.data() + text.size(), value, 16);
  if (failure != std::errc() || text != hexadecimal(value)) refuse(label, "it has no good `xxh3`");
  return value;
}

bool plain_name(std::string_view name) {
  constexpr std::string_view kLetters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-";
  return !name.empty() && name.size() <= kMaxName && name.front() != '.' &&
         name.find_first_not_of(kLetters) == name.npos && name != "manifest.json";
}

std::uint64_t hash_of(std::string_view text) { return offload::xxh3_64(std::as_bytes(std::span(text))); }

/// Whether the text has a seal. @throws Error where its hash is another text's.
bool sealed(std::string_view text, const std::string& label) {
  constexpr std::size_t kBytes = kSeal.size() + kHashDigits + kSealed.size();
  if (text.size() < kBytes || !text.ends_with(kSealed)) return false;
  const std::string_view tail = text.substr(text.size() - kBytes);
  if (!tail.starts_with(kSeal)) return false;
  if (tail.substr(kSeal.size(), kHashDigits) != hexadecimal(hash_of(text.substr(0, text.size() - kBytes)))) {
    refuse(label, "its bytes are not those that were written");
  }
  return true;
}

std::vector<FilePart> parts_of(const std::string& label, const Json& file, std::uint64_t bytes) {
  std::vector<FilePart> parts;
  if (file.find("parts") == nullptr) return parts;
  std::uint64_t last = 0;
  for (const Json& part : member<Json::Array>(label, file, "parts")) {
    const auto end = member<std::uint64_t>(label, part, "end");
    if (end < last || end > bytes) refuse(label, "it has parts of a file that are not in it");
    last = end;
    parts.push_back({member<std::string>(label, part, "name"), end, hash_of(label, part)});
  }
  return parts;
}

}  // namespace

Json to_json(const CheckpointFile& file) {
  Json::Object object{{"name", file.name}, {"bytes", file.digest.bytes}, {"xxh3", hexadecimal(file.digest.xxh3)}};
  if (!file.digest.parts.empty()) {
    Json::Array parts;
    for (const FilePart& part : file.digest.parts) {
      parts.emplace_back(Json::Object{{"name", part.name}, {"end", part.end}, {"xxh3", hexadecimal(part.xxh3)}});
    }
    object.emplace_back("parts", std::move(parts));
  }
  return object;
}

CheckpointFile checkpoint_file_of(const Json& json, const std::string& label) {
  CheckpointFile file;
  file.name = member<std::string>(label, json, "name");
  if (!plain_name(file.name)) {
    refuse(label, "it names a file that can't be in its folder: " + shown_name(file.name));
  }
  file.digest.bytes = member<std::uint64_t>(label, json, "bytes");
  if (file.digest.bytes > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) {
    refuse(label, "it has no good `bytes`");
  }
  file.digest.xxh3 = hash_of(label, json);
  file.digest.parts = parts_of(label, json, file.digest.bytes);
  return file;
}

std::string manifest_text(const Manifest& manifest) {
  Json::Array files;
  for (const CheckpointFile& file : manifest.files) files.push_back(to_json(file));
  const Json json =
      Json::Object{{"spillway_checkpoint", kVersion}, {"step", manifest.step},     {"world_size", manifest.world_size},
                   {"files", std::move(files)},       {"config", manifest.config}, {"progress", manifest.progress}};
  std::string text = json.dump(2);
  text.resize(text.size() - kEnd.size());
  const std::string hash = hexadecimal(hash_of(std::string_view(text)));
  return text.append(kSeal).append(hash).append(kSealed);
}

Manifest parse_manifest(std::string_view text, const std::string& label) {
  const bool has_seal = sealed(text, label);
  Json json;
  try {
    json = parse_json(text, label, kLimits);
  } catch (const ConfigError& wrong) {
    refuse(label, wrong.what());
  }
  const auto version = member<std::uint64_t>(label, json, "spillway_checkpoint");
  if (version == 0 || version > kVersion) {
    throw Error(label + ": of version " + std::to_string(version) + ", and this program reads versions 1 to " +
                std::to_string(kVersion) + "; take the program that wrote it");
  }
  // One without a seal that says version 1 is of an earlier program, unless a hash that no longer ends it is there.
  if (!has_seal && (version != kUnsealed || json.find("xxh3") != nullptr)) {
    refuse(label, "its bytes are not those that were written");
  }
  Manifest manifest;
  manifest.step = member<std::uint64_t>(label, json, "step");
  manifest.world_size = member<std::uint64_t>(label, json, "world_size");
  if (manifest.world_size == 0 || manifest.world_size > kMaxRanks) refuse(label, "it has no good `world_size`");
  manifest.config = member<Json::Object>(label, json, "config");
  manifest.progress = member<Json::Object>(label, json, "progress");
  std::unordered_set<std::string> names;
  for (const Json& file : member<Json::Array>(label, json, "files")) {
    manifest.files.push_back(checkpoint_file_of(file, label));
    if (!names.insert(manifest.files.back().name).second) {
      refuse(label, "it names " + manifest.files.back().name + " twice");
    }
  }
  return manifest;
}

}  // namespace spillway::app
