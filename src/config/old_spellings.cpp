#include <spillway/app/config/old_spellings.hpp>

#include <array>
#include <utility>

#include <spillway/app/config/json_path.hpp>
#include <spillway/offload/error.hpp>

namespace spillway::app {
namespace {

constexpr std::string_view kCpuOffload = "zero_optimization.cpu_offload";
constexpr std::string_view kDevice = "zero_optimization.offload_optimizer.device";
constexpr std::string_view kNvmePath = "zero_optimization.offload_optimizer.nvme_path";
constexpr std::string_view kOwnNvmePath = "offload.nvme_path";

constexpr std::array kMoved = {
    MovedKey{kCpuOffload, kDevice},
    MovedKey{kNvmePath, kOwnNvmePath},
    MovedKey{"zero_optimization.cpu_offload_use_pin_memory", "zero_optimization.offload_optimizer.pin_memory"},
    MovedKey{"optimizer.params.max_grad_norm", "gradient_clipping"},
    MovedKey{"aio.thread_count", "aio.intra_op_parallelism"},
};
constexpr std::size_t kFirstRenamed = 2;  // From there on, spellings that differ in nothing but the name.

/// Of cpu_offload.
Json device_for(const Json& cpu_offload) {
  if (cpu_offload.get_if<bool>() == nullptr) {
    throw ConfigError(std::string(kCpuOffload) + ": wanted true or false, got " + cpu_offload.describe());
  }
  return cpu_offload == Json(true) ? "cpu" : "none";
}

void replace_cpu_offload(Json& root) {
  const Json offload = take_at(root, kCpuOffload);
  if (offload.is_null()) {
    return;
  }
  Json wanted = device_for(offload);
  const Json* device = find_at(root, kDevice);
  if (device == nullptr) {
    make_at(root, kDevice) = std::move(wanted);
  } else if (offload == Json(true) && *device != wanted) {
    throw ConfigError(std::string(kCpuOffload) + ": true contradicts offload_optimizer.device, " + device->describe() +
                      "; leave out cpu_offload, the old spelling");
  }
}

void replace_renamed(Json& root, const MovedKey& renamed) {
  Json value = take_at(root, renamed.from);
  if (value.is_null()) {
    return;
  }
  const Json* own = find_at(root, renamed.to);
  if (own != nullptr && *own != value) {
    throw ConfigError(std::string(renamed.from) + ": " + value.describe() + " contradicts " + std::string(renamed.to) +
                      ", " + own->describe() + "; keep " + std::string(renamed.to));
  }
  make_at(root, renamed.to) = std::move(value);
}

void check_folders(const Json& path) {
  if (path.get_if<std::string>() == nullptr && path.get_if<Json::Array>() == nullptr) {
    throw ConfigError(std::string(kNvmePath) + ": wanted a folder, or a list of folders, got " + path.describe());
  }
}

void move_nvme_path(Json& root, std::vector<std::string>& warnings) {
  Json path = take_at(root, kNvmePath);
  if (path.is_null()) {
    return;
  }
  check_folders(path);
  const Json* own = find_at(root, kOwnNvmePath);
  if (own == nullptr) {
    make_at(root, kOwnNvmePath) = std::move(path);
  } else if (*own != path) {
    warnings.push_back(std::string(kNvmePath) + " is passed over: offload.nvme_path holds for all");
  }
}

}  // namespace

void replace_old_spellings(Json& root, std::vector<std::string>& warnings) {
  replace_cpu_offload(root);
  for (const MovedKey& renamed : std::span(kMoved).subspan(kFirstRenamed)) replace_renamed(root, renamed);
  move_nvme_path(root, warnings);
}

std::span<const MovedKey> moved_keys() noexcept { return kMoved; }

}  // namespace spillway::app
