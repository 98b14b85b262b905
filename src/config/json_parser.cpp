// The one source that sees nlohmann-json. Its document type keeps the last of two equal keys, casts integers without a
// word and recurses without limit; only its tokens are used here.
#include <unordered_set>

#include <nlohmann/json.hpp>

#include <spillway/app/config/json.hpp>
#include <spillway/app/config/key_names.hpp>
#include <spillway/offload/error.hpp>

namespace spillway::app {
namespace {

constexpr std::size_t kShownBytes = 300;  // The parser quotes the last token, however long it is.

class Builder final : public nlohmann::json_sax<nlohmann::json> {
 public:
  Builder(std::string_view label, const JsonLimits& limits) : label_(label), limits_(limits) {}

  [[nodiscard]] Json take() { return std::move(root_); }

  bool null() override { return add(Json()); }
  bool boolean(bool value) override { return add(Json(value)); }
  bool number_integer(number_integer_t value) override { return add(Json::of_integer(value)); }
  bool number_unsigned(number_unsigned_t value) override { return add(Json(std::uint64_t{value})); }
  bool number_float(number_float_t value, const string_t& /*text*/) override { return add(Json(value)); }
  bool string(string_t& value) override { return add(Json(std::move(value))); }
  bool binary(binary_t& /*value*/) override { return false; }  // Text formats have none.

  bool start_object(std::size_t /*unknown*/) override { return open(Json(Json::Object())); }
  bool start_array(std::size_t /*unknown*/) override { return open(Json(Json::Array())); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }

  bool key(string_t& name) override {
    auto& object = *path_.back()->get_if<Json::Object>();
    if (!keys_.back().insert(name).second) {
      throw ConfigError(label_ + ": the key " + key_path(name) + " is given twice; keep one of them");
    }
    if (object.size() == limits_.members) {
      throw ConfigError(label_ + ": an object has more than " + std::to_string(limits_.members) + " keys");
    }
    object.emplace_back(std::move(name), Json());
    return true;
  }

  bool parse_error(std::size_t /*position*/, const std::string& /*token*/,
                   const nlohmann::detail::exception& error) override {
    // "[json.exception.parse_error.101] parse error at line 2, column 5: …"
    const std::string_view text = error.what();
    const std::size_t start = text.find("] ");
    const std::string_view what = text.substr(start == text.npos ? 0 : start + 2);
    throw ConfigError(label_ + ": not valid JSON: " + std::string(what.substr(0, kShownBytes)));
  }

 private:
  /// Puts a value where the parser is: the root, the end of the open array, or the member just named.
  Json* place(Json value) {
    if (values_++ == limits_.values) {
      throw ConfigError(label_ + ": more than " + std::to_string(limits_.values) + " values");
    }
    if (path_.empty()) {
      root_ = std::move(value);
      return &root_;
    }
    if (auto* array = path_.back()->get_if<Json::Array>()) {
      return &array->emplace_back(std::move(value));
    }
    Json& member = path_.back()->get_if<Json::Object>()->back().second;
    member = std::move(value);
    return &member;
  }

  bool add(Json value) {
    place(std::move(value));
    return true;
  }

  bool open(Json container) {
    if (path_.size() == limits_.depth) {
      throw ConfigError(label_ + ": nested deeper than " + std::to_string(limits_.depth) + " levels");
    }
    // A container only grows while it is the last of the path, so these pointers stay valid.
    path_.push_back(place(std::move(container)));
    keys_.emplace_back();
    return true;
  }

  bool close() {
    path_.pop_back();
    keys_.pop_back();
    return true;
  }

  std::string key_path(const std::string& name) const {
    std::string path;
    for (const Json* container : path_) {
      const auto* object = container->get_if<Json::Object>();
      if (container != path_.back() && object != nullptr) {
        path += shown_name(object->back().first) + ".";
      }
    }
    return path + shown_name(name);
  }

  std::string label_;
  JsonLimits limits_;
  std::size_t values_ = 0;
  Json root_;
  std::vector<Json*> path_;
  std::vector<std::unordered_set<std::string>> keys_;  // Of each container of the path.
};

}  // namespace

Json parse_json(std::string_view text, std::string_view label, const JsonLimits& limits) {
  if (text.size() > limits.bytes) {
    throw ConfigError(std::string(label) + ": larger than " + std::to_string(limits.bytes) +
                      " bytes; a configuration is a few kilobytes");
  }
  Builder builder(label, limits);
  nlohmann::json::sax_parse(text, &builder);
  return builder.take();
}

}  // namespace spillway::app
