#include <spillway/app/config/json.hpp>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <type_traits>

namespace spillway::app {
namespace {

constexpr std::size_t kShownCharacters = 40;

void write_text(std::string& out, std::string_view text) {
  constexpr std::string_view kHex = "0123456789abcdef";
  out += '"';
  for (const char c : text) {
    const auto code = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (code < 0x20U) {
      out += "\\u00";
      out += kHex[code >> 4U];
      out += kHex[code & 15U];
    } else {
      out += c;
    }
  }
  out += '"';
}

void write_double(std::string& out, double value) {
  if (!std::isfinite(value)) {
    out += "null";
    return;
  }
  std::array<char, 32> digits{};
  const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), value).ptr;
  const std::string_view text(digits.data(), static_cast<std::size_t>(end - digits.data()));
  out += text;
  if (text.find_first_of(".e") == std::string_view::npos) {
    out += ".0";  // Or it would come back as an integer.
  }
}

void new_line(std::string& out, unsigned indent, unsigned level) {
  if (indent > 0) {
    out += '\n';
    out.append(std::size_t{indent} * level, ' ');
  }
}

void write(std::string& out, const Json& json, unsigned indent, unsigned level);

void write_array(std::string& out, const Json::Array& array, unsigned indent, unsigned level) {
  // On one line in any case: the arrays of a configuration are short.
  out += '[';
  for (const Json& item : array) {
    if (&item != array.data()) {
      out += indent > 0 ? ", " : ",";
    }
    write(out, item, indent, level + 1);
  }
  out += ']';
}

void write_object(std::string& out, const Json::Object& object, unsigned indent, unsigned level) {
  if (object.empty()) {
    out += "{}";
    return;
  }
  out += '{';
  for (const Json::Member& member : object) {
    if (&member != object.data()) {
      out += ',';
    }
    new_line(out, indent, level + 1);
    write_text(out, member.first);
    out += indent > 0 ? ": " : ":";
    write(out, member.second, indent, level + 1);
  }
  new_line(out, indent, level);
  out += '}';
}

void write(std::string& out, const Json& json, unsigned indent, unsigned level) {
  if (const auto* object = json.get_if<Json::Object>()) {
    write_object(out, *object, indent, level);
  } else if (const auto* array = json.get_if<Json::Array>()) {
    write_array(out, *array, indent, level);
  } else if (const auto* text = json.get_if<std::string>()) {
    write_text(out, *text);
  } else if (const auto* number = json.get_if<double>()) {
    write_double(out, *number);
  } else if (const auto* positive = json.get_if<std::uint64_t>()) {
    out += std::to_string(*positive);
  } else if (const auto* negative = json.get_if<std::int64_t>()) {
    out += std::to_string(*negative);
  } else if (const auto* boolean = json.get_if<bool>()) {
    out += *boolean ? "true" : "false";
  } else {
    out += "null";
  }
}

}  // namespace

Json::Json() noexcept = default;
Json::Json(const Json&) = default;
Json::Json(Json&&) noexcept = default;
Json& Json::operator=(const Json&) = default;
Json& Json::operator=(Json&&) noexcept = default;
Json::~Json() = default;

Json Json::of_integer(std::int64_t value) { return value >= 0 ? Json(static_cast<std::uint64_t>(value)) : Json(value); }

const Json* Json::find(std::string_view key) const noexcept {
  const auto* object = get_if<Object>();
  if (object == nullptr) {
    return nullptr;
  }
  const auto found = std::ranges::find(*object, key, &Member::first);
  return found == object->end() ? nullptr : &found->second;
}

Json* Json::find(std::string_view key) noexcept { return const_cast<Json*>(std::as_const(*this).find(key)); }

std::string Json::describe() const {
  if (get_if<Object>() != nullptr) {
    return "an object";
  }
  if (get_if<Array>() != nullptr) {
    return "a list";
  }
  std::string shown = dump();
  if (shown.size() > kShownCharacters) {
    std::size_t end = kShownCharacters;
    while (end > 0 && (static_cast<unsigned char>(shown[end]) & 0xC0U) == 0x80U) {
      --end;  // Never half of a UTF-8 sequence.
    }
    shown.resize(end);
    shown += "…";
  }
  if (get_if<std::string>() != nullptr) {
    return "text " + shown;
  }
  const bool number = !is_null() && get_if<bool>() == nullptr;
  return number ? "number " + shown : shown;
}

std::string Json::dump(unsigned indent) const {
  std::string out;
  write(out, *this, indent, 0);
  return out;
}

}  // namespace spillway::app
