// Holds the tables of docs/configuration.md against what the parser does: each key that the parser knows is in one of
// them, each row says of it what happens.
#include <algorithm>
#include <fstream>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <spillway/app/config/config_keys.hpp>
#include <spillway/app/config/load_config.hpp>
#include <spillway/app/config/old_spellings.hpp>
#include <spillway/app/config/training_keys.hpp>
#include <spillway/offload/error.hpp>

#include "support/errors.hpp"

namespace spillway::app::configuration_doc_test {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

/// A row "| `key` | default | status | meaning |"; of a refused value "| `key`: `value` | …".
struct Row {
  std::string key;
  std::string value;
  std::string fallback;
  std::string status;
};

std::string trimmed(const std::string& cell) {
  const std::size_t first = cell.find_first_not_of(' ');
  return first == std::string::npos ? "" : cell.substr(first, cell.find_last_not_of(' ') + 1 - first);
}

/// What stands between backquotes; nothing for other text.
std::string code_of(const std::string& cell) {
  return cell.size() > 2 && cell.front() == '`' && cell.back() == '`' ? cell.substr(1, cell.size() - 2) : "";
}

Row row_of(const std::string& line) {
  std::vector<std::string> cells;
  std::istringstream parts(line.substr(1));
  for (std::string cell; std::getline(parts, cell, '|');) cells.push_back(trimmed(cell));
  Row row{.key = cells.at(0), .value = {}, .fallback = code_of(cells.at(1)), .status = cells.at(2)};
  if (const std::size_t colon = row.key.find("`: `"); colon != std::string::npos) {
    row.value = code_of(row.key.substr(colon + 3));
    row.key.resize(colon + 1);
  }
  row.key = code_of(row.key);
  return row;
}

std::vector<Row> rows() {
  std::vector<Row> all;
  std::ifstream file(SPILLWAY_CONFIGURATION_DOC);
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("| `")) all.push_back(row_of(line));
  }
  return all;
}

/// Keys, paths from the root, and the values that they have in a configuration. The first that has a key gives its
/// default.
void flatten(const Json& json, const std::string& path, std::map<std::string, Json>& values) {
  const auto* const object = json.get_if<Json::Object>();
  if (object == nullptr) {
    values.try_emplace(path, json);
    return;
  }
  for (const auto& [key, value] : *object) flatten(value, path.empty() ? key : path + "." + key, values);
}

/// Of every type of optimizer and scheduler, the usual ones first.
std::map<std::string, Json> supported_keys() {
  std::map<std::string, Json> values;
  const auto collect = [&values](const Config& config) { flatten(every_key(config), "", values); };
  collect(Config());
  for (const OptimizerKind kind : {OptimizerKind::kAdam, OptimizerKind::kSgd, OptimizerKind::kAdagrad,
                                   OptimizerKind::kRmsprop, OptimizerKind::kLars}) {
    Config config;
    apply_optimizer_defaults(config.optimizer, kind);
    collect(config);
  }
  for (const SchedulerKind kind :
       {SchedulerKind::kWarmup, SchedulerKind::kWarmupDecay, SchedulerKind::kWarmupCosine, SchedulerKind::kOneCycle}) {
    Config config;
    apply_scheduler_defaults(config.scheduler, kind);
    collect(config);
  }
  return values;
}

bool is_container(const InertKey& key) {
  const std::string prefix = std::string(key.path) + ".";
  return std::ranges::any_of(inert_keys(), [&](const InertKey& other) { return other.path.starts_with(prefix); });
}

std::map<std::string, InertKey> inert_alone() {
  const std::map<std::string, Json> supported = supported_keys();
  std::map<std::string, InertKey> keys;
  for (const InertKey& key : inert_keys()) {
    if (!supported.contains(std::string(key.path)) && !is_container(key)) keys.emplace(key.path, key);
  }
  return keys;
}

std::set<std::string> keys_with(std::initializer_list<std::string_view> statuses) {
  std::set<std::string> keys;
  for (const Row& row : rows()) {
    if (std::ranges::find(statuses, row.status) != statuses.end()) keys.insert(row.key);
  }
  return keys;
}

/// A value of the key's type that is not its default.
Json another_value(const InertKey& key) {
  switch (key.kind) {
    case InertKind::kBlock:
      return Json::Object();
    case InertKind::kBoolean:
      return key.fallback != "true";
    case InertKind::kInteger:
      return std::uint64_t{12345};
    case InertKind::kNumber:
      return 0.12345;
    case InertKind::kText:
      return "other";
    case InertKind::kNumbers:
      return Json::Array{Json(0.5)};
    case InertKind::kTexts:
      return Json::Array{Json("other")};
  }
  return {};
}

ResolvedConfig load_with(const std::string& key, const Json& value) {
  const std::vector<Override> overrides = {{key, value}};
  return load_config({.overrides = overrides});
}

std::vector<std::string> warnings_of(const InertKey& key) {
  return load_with(std::string(key.path), another_value(key)).warnings;
}

TEST(ConfigurationDoc, HasARowForEachKeyThatHasAnEffectAndNoOther) {
  std::set<std::string> wanted;
  for (const auto& [key, value] : supported_keys()) wanted.insert(key);
  for (const MovedKey& key : moved_keys()) wanted.emplace(key.from);
  EXPECT_EQ(keys_with({"supported"}), wanted);
}

TEST(ConfigurationDoc, HasARowForEachKeyWithoutEffectAndNoOther) {
  std::set<std::string> wanted;
  for (const auto& [path, key] : inert_alone()) wanted.insert(path);
  EXPECT_EQ(keys_with({"accepted", "ignored"}), wanted);
}

TEST(ConfigurationDoc, HasEachKeyOnce) {
  std::multiset<std::string> keys;
  for (const Row& row : rows()) {
    EXPECT_THAT((std::vector<std::string>{"supported", "accepted", "ignored", "refused"}), Contains(row.status));
    if (row.status != "refused") keys.insert(row.key);
  }
  for (const std::string& key : keys) EXPECT_EQ(keys.count(key), 1U) << key;
}

TEST(ConfigurationDoc, NamesTheDefaultsThatThereAre) {
  const std::map<std::string, Json> supported = supported_keys();
  const std::map<std::string, InertKey> inert = inert_alone();
  for (const Row& row : rows()) {
    if (row.status == "refused") continue;
    if (const auto found = supported.find(row.key); found != supported.end() && !row.fallback.empty()) {
      EXPECT_EQ(parse_json(row.fallback, row.key), found->second) << row.key << ": " << found->second.dump();
    }
    if (const auto found = inert.find(row.key); found != inert.end()) {
      EXPECT_EQ(row.fallback, found->second.fallback) << row.key;
    }
  }
}

TEST(ConfigurationDoc, CallsAcceptedWhatGivesNoWarningAndIgnoredWhatGivesOneThatNamesTheKey) {
  const std::map<std::string, InertKey> inert = inert_alone();
  const std::set<std::string> refused = keys_with({"refused"});  // With another value than the default.
  for (const Row& row : rows()) {
    if (row.status == "accepted" && !refused.contains(row.key)) {
      EXPECT_THAT(warnings_of(inert.at(row.key)), IsEmpty()) << row.key;
    } else if (row.status == "ignored") {
      EXPECT_THAT(warnings_of(inert.at(row.key)), Contains(HasSubstr(row.key))) << row.key;
    }
  }
}

TEST(ConfigurationDoc, CallsRefusedWhatIsAnErrorThatNamesTheKey) {
  std::size_t refused = 0;
  for (const Row& row : rows()) {
    if (row.status != "refused") continue;
    ++refused;
    const auto load = [&] { (void)load_with(row.key, parse_json(row.value, row.key)); };
    EXPECT_THAT(message_of<ConfigError>(load), HasSubstr(row.key));
  }
  EXPECT_EQ(refused, 4U);
}

}  // namespace
}  // namespace spillway::app::configuration_doc_test
