#include <initializer_list>
#include <utility>

#include <spillway/app/config/config_keys.hpp>
#include <spillway/app/config/json_path.hpp>
#include <spillway/app/config/load_config.hpp>

namespace spillway::app {
namespace {

constexpr const char* kAuto = "auto";

class ConfigWriter final : public BlockVisitor {
 public:
  [[nodiscard]] Json::Object take() { return std::move(object_); }

  void boolean(std::string_view key, bool& value) override { put(key, value); }
  void integer(std::string_view key, std::uint64_t& value, IntegerRange /*range*/) override { put(key, value); }
  void number(std::string_view key, double& value, NumberRange /*range*/) override { put(key, value); }
  void optional_integer(std::string_view key, std::optional<std::uint64_t>& value, IntegerRange /*range*/) override {
    put(key, value ? Json(*value) : Json(kAuto));
  }
  void optional_number(std::string_view key, std::optional<double>& value, NumberRange /*range*/) override {
    put(key, value ? Json(*value) : Json(kAuto));
  }
  void text(std::string_view key, std::string& value) override { put(key, value); }
  void texts(std::string_view key, std::vector<std::string>& values, std::string_view /*what*/) override {
    put(key, Json::Array(values.begin(), values.end()));
  }
  void choice(std::string_view key, std::size_t& index, std::span<const std::string_view> names) override {
    put(key, names[index]);
  }
  void integers(std::string_view key, std::vector<std::uint64_t>& values, IntegerRange /*range*/) override {
    put(key, Json::Array(values.begin(), values.end()));
  }
  void numbers(std::string_view key, std::span<double> values, NumberRange /*range*/) override {
    put(key, Json::Array(values.begin(), values.end()));
  }
  void block(std::string_view key, BlockOwner /*owner*/, const std::function<void(BlockVisitor&)>& visit) override {
    ConfigWriter inner;
    visit(inner);
    put(key, inner.take());
  }

 private:
  void put(std::string_view key, Json value) { object_.emplace_back(std::string(key), std::move(value)); }

  Json::Object object_;
};

}  // namespace

Json every_key(const Config& config) {
  Config visited = config;  // A visitor may change what it visits; this one does not.
  ConfigWriter writer;
  visit_config(writer, visited);
  return writer.take();
}

Json to_json(const Config& config) {
  Json root = every_key(config);
  const auto leave_out = [&root](bool unused, std::initializer_list<const char*> keys) {
    for (const char* key : keys) {
      if (unused) take_at(root, key);
    }
  };
  leave_out(!config.has_bank(), {"contrastive.queue_size", "contrastive.queue_schedule",
                                 "contrastive.exclude_same_class", "contrastive.bank"});
  leave_out(!config.has_batch_negatives(), {"contrastive.accumulation"});
  leave_out(!config.has_temperature(), {"contrastive.learnable_temperature"});
  leave_out(!config.has_momentum_encoder(), {"contrastive.momentum_schedule"});
  Json::Object object = std::move(*root.get_if<Json::Object>());
  const std::string_view unused = config.steps > 0 ? "epochs" : "steps";
  std::erase_if(object, [&](const Json::Member& member) {
    return member.first == "train_micro_batch_size_per_gpu" || member.first == unused;
  });
  return object;
}

}  // namespace spillway::app
