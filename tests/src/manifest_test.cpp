#include <spillway/app/checkpoint/manifest.hpp>

#include <array>
#include <cstdio>
#include <span>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <spillway/offload/checksum.hpp>
#include <spillway/offload/error.hpp>

#include "support/errors.hpp"

namespace spillway::app::manifest_test {
namespace {

using ::testing::HasSubstr;

Manifest example() {
  Manifest manifest;
  manifest.step = 7;
  manifest.world_size = 2;
  manifest.files = {{"rank_0.safetensors", {100, 0xFEED, {{"the header", 60, 1}, {"encoder.weight", 100, 0xFEED}}}},
                    {"rank_1.safetensors", {0, 0, {}}}};
  manifest.config = Json::Object{{"seed", std::uint64_t{3}}};
  manifest.progress = Json::Object{};
  return manifest;
}

/// The text with another one in a place of it, and the hash that then is right.
std::string resealed(std::string text, const std::string& what, const std::string& by) {
  text.replace(text.find(what), what.size(), by);
  const std::size_t seal = text.rfind(",\n  \"xxh3\": \"");
  text.resize(seal);
  std::array<char, 17> hash{};
  std::snprintf(hash.data(), hash.size(), "%016llx",
                static_cast<unsigned long long>(offload::xxh3_64(std::as_bytes(std::span(text)))));
  return text + ",\n  \"xxh3\": \"" + hash.data() + "\"\n}\n";
}

/// The text of version 1, which had no hash of its own.
std::string unsealed(const Manifest& manifest) {
  std::string text = resealed(manifest_text(manifest), "checkpoint\": 2", "checkpoint\": 1");
  return text.substr(0, text.rfind(",\n  \"xxh3\"")) + "\n}\n";
}

std::string refusal(const std::string& text) {
  return message_of<Error>([&] { (void)parse_manifest(text, "m.json"); });
}

TEST(Manifest, GivesItselfBack) {
  const std::string text = manifest_text(example());
  EXPECT_EQ(parse_manifest(text, "m.json"), example());
  EXPECT_EQ(manifest_text(parse_manifest(text, "m.json")), text);
}

TEST(Manifest, OfVersion1IsRead) {
  Manifest manifest = example();
  for (CheckpointFile& file : manifest.files) file.digest.parts.clear();
  EXPECT_EQ(parse_manifest(unsealed(manifest), "m.json"), manifest);
}

TEST(Manifest, OfALaterVersionIsRefused) {
  EXPECT_THAT(refusal(resealed(manifest_text(example()), "checkpoint\": 2", "checkpoint\": 3")),
              HasSubstr("version 3"));
}

TEST(Manifest, RefusesEveryChangedByteAndEveryLength) {
  const std::string text = manifest_text(example());
  for (std::size_t at = 0; at < text.size(); ++at) {
    for (const char change : {'\x01', '\x03', '\x20', '\x80'}) {
      std::string changed = text;
      changed[at] = static_cast<char>(changed[at] ^ change);
      EXPECT_THAT(refusal(changed), HasSubstr("m.json")) << at;
    }
    EXPECT_THAT(refusal(text.substr(0, at)), HasSubstr("m.json")) << at;
    EXPECT_THAT(refusal(text + text.substr(0, at + 1)), HasSubstr("m.json")) << at;
  }
}

// The control: without the hash, as in version 1, a change of a number is taken for what was written.
TEST(Manifest, OfVersion1DoesNotShowThatANumberWasChanged) {
  std::string text = unsealed(example());
  text.replace(text.find("\"step\": 7"), 9, "\"step\": 6");
  EXPECT_EQ(parse_manifest(text, "m.json").step, 6U);
}

TEST(Manifest, RefusesNamesThatLeadOutOfTheFolder) {
  for (const std::string name : {"../../x", "/etc/passwd", "..", ".", "", "a/b", "a\\\\b", "a\\u0000b", "a\\nb",
                                 "manifest.json", "rank_1.safetensors"}) {
    const std::string text = resealed(manifest_text(example()), "\"rank_0.safetensors\"", "\"" + name + "\"");
    EXPECT_THAT(refusal(text), ::testing::AnyOf(HasSubstr("can't be in its folder"), HasSubstr("twice"))) << name;
  }
  Manifest manifest = example();
  manifest.files[0].name = std::string(5000, 'x');
  const std::string message = refusal(manifest_text(manifest));
  EXPECT_THAT(message, HasSubstr("can't be in its folder"));
  EXPECT_LT(message.size(), 500U);
}

TEST(Manifest, RefusesNumbersThatCanNotBe) {
  const std::string text = manifest_text(example());
  const auto with = [&](const std::string& what, const std::string& by) { return refusal(resealed(text, what, by)); };
  EXPECT_THAT(with("\"bytes\": 100", "\"bytes\": 18446744073709551615"), HasSubstr("bytes"));
  EXPECT_THAT(with("\"bytes\": 100", "\"bytes\": -1"), HasSubstr("bytes"));
  EXPECT_THAT(with("\"bytes\": 100", "\"bytes\": 1e2"), HasSubstr("bytes"));
  EXPECT_THAT(with("\"bytes\": 100", "\"bytes\": 99"), HasSubstr("parts"));
  EXPECT_THAT(with("\"end\": 60", "\"end\": 101"), HasSubstr("parts"));
  EXPECT_THAT(with("\"world_size\": 2", "\"world_size\": 0"), HasSubstr("world_size"));
  EXPECT_THAT(with("\"world_size\": 2", "\"world_size\": 4294967296"), HasSubstr("world_size"));
  EXPECT_THAT(with("\"step\": 7", "\"step\": 7, \"step\": 8"), HasSubstr("twice"));
  EXPECT_THAT(with("000000000000feed", "000000000000FEED"), HasSubstr("xxh3"));
}

}  // namespace
}  // namespace spillway::app::manifest_test
