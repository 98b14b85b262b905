#include <spillway/app/config/config_reader.hpp>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include <spillway/app/config/config_keys.hpp>
#include <spillway/app/config/key_names.hpp>
#include <spillway/app/config/old_spellings.hpp>
#include <spillway/offload/error.hpp>

namespace spillway::app {
namespace {

constexpr NumberRange kAnyNumber{.min = std::numeric_limits<double>::lowest()};

constexpr double kExactIntegers = 9007199254740992.0;  // 2^53: up to here every integer is a double of its own.

[[noreturn]] void wrong_value(const std::string& path, const std::string& wanted, const Json& got) {
  throw ConfigError(path + ": wanted " + wanted + ", got " + got.describe());
}

bool is_auto(const Json& json) {
  const auto* text = json.get_if<std::string>();
  return text != nullptr && *text == "auto";
}

std::string brief(double value) { return Json(value).dump(); }

std::string wanted_integer(IntegerRange range) {
  const bool bounded = range.max != IntegerRange().max;
  return "an integer " + (bounded ? "of " + std::to_string(range.min) + " to " + std::to_string(range.max)
                                  : "of at least " + std::to_string(range.min));
}

std::string wanted_number(NumberRange range) {
  std::string wanted = "a number " + std::string(range.open_min ? "above " : "of at least ") + brief(range.min);
  if (range.max != NumberRange().max) {
    wanted += std::string(range.open_max ? " and below " : " and at most ") + brief(range.max);
  }
  return wanted;
}

std::uint64_t checked_integer(const std::string& path, const Json& json, IntegerRange range) {
  std::uint64_t value = 0;
  if (const auto* integer = json.get_if<std::uint64_t>()) {
    value = *integer;
  } else if (const auto* real = json.get_if<double>();
             real != nullptr && *real >= 0.0 && *real <= kExactIntegers && std::trunc(*real) == *real) {
    value = static_cast<std::uint64_t>(*real);  // Written as 2e8.
  } else {
    wrong_value(path, wanted_integer(range), json);
  }
  if (value < range.min || value > range.max) {
    wrong_value(path, wanted_integer(range), json);
  }
  return value;
}

double checked_number(const std::string& path, const Json& json, NumberRange range) {
  double value = 0.0;
  if (const auto* real = json.get_if<double>()) {
    value = *real;
  } else if (const auto* positive = json.get_if<std::uint64_t>()) {
    value = static_cast<double>(*positive);
  } else if (const auto* negative = json.get_if<std::int64_t>()) {
    value = static_cast<double>(*negative);
  } else {
    wrong_value(path, wanted_number(range), json);
  }
  const bool low = value < range.min || (range.open_min && value == range.min);
  const bool high = value > range.max || (range.open_max && value == range.max);
  if (low || high) {
    wrong_value(path, wanted_number(range), json);
  }
  return value;
}

const InertKey* find_inert(std::string_view path) {
  const auto keys = inert_keys();
  const auto found = std::ranges::find(keys, path, &InertKey::path);
  return found == keys.end() ? nullptr : &*found;
}

/// The names that inert keys directly beneath `prefix` have.
std::vector<std::string_view> inert_names_under(std::string_view prefix) {
  std::vector<std::string_view> names;
  for (const InertKey& inert : inert_keys()) {
    if (inert.path.starts_with(prefix) && inert.path.find('.', prefix.size()) == std::string_view::npos) {
      names.push_back(inert.path.substr(prefix.size()));
    }
  }
  return names;
}

bool switched_off(const Json& block) {
  const Json* enabled = block.find("enabled");
  return enabled != nullptr && *enabled == Json(false);
}

bool is_text(const Json& json) { return json.get_if<std::string>() != nullptr; }

bool is_list_of(const Json& json, bool (*is_item)(const Json&)) {
  const auto* list = json.get_if<Json::Array>();
  return list != nullptr && std::ranges::all_of(*list, is_item);
}

bool is_number(const Json& json) {
  return json.get_if<double>() != nullptr || json.get_if<std::uint64_t>() != nullptr ||
         json.get_if<std::int64_t>() != nullptr;
}

/// Refuses a value of another type than the key's, although it would have no effect.
void check_inert(const std::string& path, InertKind kind, const Json& value) {
  const auto require = [&](bool kept, const char* wanted) {
    if (!kept) wrong_value(path, wanted, value);
  };
  switch (kind) {
    case InertKind::kBlock:
      return require(value.get_if<Json::Object>() != nullptr, "an object");
    case InertKind::kBoolean:
      return require(value.get_if<bool>() != nullptr, "true or false");
    case InertKind::kInteger:
      return static_cast<void>(checked_integer(path, value, {}));
    case InertKind::kNumber:
      return require(is_number(value), "a number");
    case InertKind::kText:
      return require(is_text(value), "text");
    case InertKind::kNumbers:
      return require(is_list_of(value, is_number), "a list of numbers");
    case InertKind::kTexts:
      return require(is_list_of(value, is_text), "a list of texts");
  }
}

/// Whether a value is the same as a default that is written as JSON, also where one is an integer and the other not.
bool is_default(const Json& value, std::string_view fallback) {
  if (fallback.empty()) return false;
  const Json wanted = parse_json(fallback, "default");
  return is_number(value) && is_number(wanted)
             ? checked_number("", value, kAnyNumber) == checked_number("", wanted, kAnyNumber)
             : value == wanted;
}

}  // namespace

ConfigReader::ConfigReader(const Json::Object& block, std::string path, BlockOwner owner, bool strict,
                           ReadingNotes& notes)
    : block_(block), path_(std::move(path)), owner_(owner), strict_(strict), notes_(notes) {}

const Json* ConfigReader::take(std::string_view key) {
  asked_.push_back(key);
  const auto found = std::ranges::find(block_, key, &Json::Member::first);
  return found == block_.end() || found->second.is_null() ? nullptr : &found->second;
}

const Json* ConfigReader::take_number(std::string_view key) {
  const Json* json = take(key);
  const bool automatic = owner_ == BlockOwner::kDeepSpeed && json != nullptr && is_auto(*json);
  return automatic ? nullptr : json;
}

void ConfigReader::boolean(std::string_view key, bool& value) {
  if (const Json* json = take_number(key)) {
    const auto* boolean = json->get_if<bool>();
    if (boolean == nullptr) {
      wrong_value(path_ + std::string(key), "true or false", *json);
    }
    value = *boolean;
  }
}

void ConfigReader::integer(std::string_view key, std::uint64_t& value, IntegerRange range) {
  if (const Json* json = take_number(key)) {
    value = checked_integer(path_ + std::string(key), *json, range);
  }
}

void ConfigReader::number(std::string_view key, double& value, NumberRange range) {
  if (const Json* json = take_number(key)) {
    value = checked_number(path_ + std::string(key), *json, range);
  }
}

void ConfigReader::optional_integer(std::string_view key, std::optional<std::uint64_t>& value, IntegerRange range) {
  if (const Json* json = take(key)) {
    value = is_auto(*json) ? std::nullopt : std::optional(checked_integer(path_ + std::string(key), *json, range));
  }
}

void ConfigReader::optional_number(std::string_view key, std::optional<double>& value, NumberRange range) {
  if (const Json* json = take(key)) {
    value = is_auto(*json) ? std::nullopt : std::optional(checked_number(path_ + std::string(key), *json, range));
  }
}

void ConfigReader::text(std::string_view key, std::string& value) {
  if (const Json* json = take(key)) {
    const auto* text = json->get_if<std::string>();
    if (text == nullptr || text->find('\0') != std::string::npos) {
      wrong_value(path_ + std::string(key), "text", *json);
    }
    value = *text;
  }
}

void ConfigReader::texts(std::string_view key, std::vector<std::string>& values, std::string_view what) {
  const Json* json = take(key);
  if (json == nullptr) {
    return;
  }
  const auto* text = json->get_if<std::string>();
  const auto* list = json->get_if<Json::Array>();
  if ((text == nullptr && list == nullptr) || (text != nullptr && text->find('\0') != std::string::npos) ||
      (list != nullptr && list->size() > kJsonMaxMembers)) {
    wrong_value(path_ + std::string(key), std::string(what) + ", or a list", *json);
  }
  values.clear();
  for (std::size_t first = 0; text != nullptr && first < text->size();) {
    const std::size_t comma = std::min(text->find(',', first), text->size());
    if (comma > first) {
      values.push_back(text->substr(first, comma - first));
    }
    first = comma + 1;
  }
  for (std::size_t i = 0; list != nullptr && i < list->size(); ++i) {
    const auto* one = (*list)[i].get_if<std::string>();
    if (one == nullptr || one->empty() || one->find('\0') != std::string::npos) {
      wrong_value(path_ + std::string(key) + "[" + std::to_string(i) + "]", std::string(what), (*list)[i]);
    }
    values.push_back(*one);
  }
}

void ConfigReader::choice(std::string_view key, std::size_t& index, std::span<const std::string_view> names) {
  const Json* json = take(key);
  if (json == nullptr) {
    return;
  }
  const auto* text = json->get_if<std::string>();
  const auto found = text == nullptr ? names.end() : std::ranges::find_if(names, [&](std::string_view name) {
    return same_ignoring_case(name, *text);
  });
  if (found == names.end()) {
    std::string wanted = names.size() == 1 ? "" : "one of ";
    for (const std::string_view name : names) {
      wanted += (name == names.front() ? "" : ", ") + std::string(name);
    }
    wrong_value(path_ + std::string(key), wanted, *json);
  }
  index = static_cast<std::size_t>(found - names.begin());
}

void ConfigReader::integers(std::string_view key, std::vector<std::uint64_t>& values, IntegerRange range) {
  const Json* json = take(key);
  if (json == nullptr) {
    return;
  }
  const auto* list = json->get_if<Json::Array>();
  if (list == nullptr || list->empty() || list->size() > kJsonMaxMembers) {
    wrong_value(path_ + std::string(key), "a list of integers", *json);
  }
  values.clear();
  for (const Json& item : *list) {
    values.push_back(
        checked_integer(path_ + std::string(key) + "[" + std::to_string(values.size()) + "]", item, range));
  }
}

void ConfigReader::numbers(std::string_view key, std::span<double> values, NumberRange range) {
  const Json* json = take_number(key);
  if (json == nullptr) {
    return;
  }
  const auto* list = json->get_if<Json::Array>();
  if (list == nullptr || list->size() != values.size()) {
    wrong_value(path_ + std::string(key), "a list of " + std::to_string(values.size()) + " numbers", *json);
  }
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = checked_number(path_ + std::string(key) + "[" + std::to_string(i) + "]", (*list)[i], range);
  }
}

void ConfigReader::block(std::string_view key, BlockOwner owner, const std::function<void(BlockVisitor&)>& visit) {
  const Json* json = take(key);
  if (json == nullptr) {
    return;
  }
  const auto* object = json->get_if<Json::Object>();
  if (object == nullptr) {
    wrong_value(path_ + std::string(key), "an object", *json);
  }
  ConfigReader inner(*object, path_ + std::string(key) + ".", owner, strict_, notes_);
  visit(inner);
  inner.finish();
}

void ConfigReader::finish() { note_unused(block_, path_, true); }

void ConfigReader::note_unused(const Json::Object& object, const std::string& path, bool top_of_block) {
  for (const auto& [key, value] : object) {
    if (top_of_block && std::ranges::find(asked_, key) != asked_.end()) {
      continue;
    }
    const std::string full = path + key;
    if (owner_ == BlockOwner::kOurs || find_inert(full) == nullptr) {
      report_unknown(path, key, top_of_block);
    } else if (const auto* inner = value.get_if<Json::Object>();
               inner != nullptr && !inert_names_under(full + ".").empty()) {
      note_unused(*inner, full + ".", false);
    } else {
      note_inert(full, value);
    }
  }
}

void ConfigReader::note_inert(const std::string& path, const Json& value) {
  const InertKey& inert = *find_inert(path);
  if (value.is_null() || (inert.kind != InertKind::kBlock && is_auto(value))) {
    return;
  }
  check_inert(path, inert.kind, value);
  const bool limit_of_stage3 = inert.notice == InertNotice::kOfStageThree && inert.kind == InertKind::kInteger;
  const bool silent = inert.notice == InertNotice::kNever || switched_off(value) ||
                      (!limit_of_stage3 && is_default(value, inert.fallback));
  if (!silent) {
    (inert.notice == InertNotice::kOfStageThree ? notes_.stage3 : notes_.no_effect).push_back(path);
  }
}

void ConfigReader::report_unknown(const std::string& path, std::string_view key, bool top_of_block) {
  std::vector<std::string_view> candidates = inert_names_under(path);
  for (const MovedKey& moved : moved_keys()) {
    if (moved.from.starts_with(path)) candidates.push_back(moved.from.substr(path.size()));
  }
  if (top_of_block) {
    candidates.insert(candidates.end(), asked_.begin(), asked_.end());
  }
  const std::string_view nearest = nearest_name(key, candidates);
  const std::string advice = nearest.empty() ? "" : "; did you mean " + std::string(nearest) + "?";
  const std::string sentence = path + shown_name(key) + ": unknown key" + advice;
  const bool ours = owner_ == BlockOwner::kOurs || (path.empty() && is_own_top_level_key(nearest));
  if (ours || strict_) {
    throw ConfigError(sentence);
  }
  notes_.unknown.push_back(sentence);
}

}  // namespace spillway::app
