#include <spillway/app/config/old_spellings.hpp>

#include <spillway/app/config/json_path.hpp>
#include <spillway/offload/error.hpp>

namespace spillway::app {
namespace {

constexpr const char* kDevice = "zero_optimization.offload_optimizer.device";
constexpr const char* kPinMemory = "zero_optimization.offload_optimizer.pin_memory";
constexpr const char* kOptimizerNvmePath = "zero_optimization.offload_optimizer.nvme_path";

void replace_cpu_offload(Json& root) {
  const Json offload = take_at(root, "zero_optimization.cpu_offload");
  if (!offload.is_null() && offload.get_if<bool>() == nullptr) {
    throw ConfigError("zero_optimization.cpu_offload: wanted true or false, got " + offload.describe());
  }
  if (offload == Json(true)) {
    const Json* device = find_at(root, kDevice);
    if (device != nullptr && *device != Json("cpu")) {
      throw ConfigError("zero_optimization.cpu_offload: true contradicts offload_optimizer.device, " +
                        device->describe() + "; leave out cpu_offload, the old spelling");
    }
    make_at(root, kDevice) = Json("cpu");
  }
  Json pinned = take_at(root, "zero_optimization.cpu_offload_use_pin_memory");
  if (!pinned.is_null() && find_at(root, kPinMemory) == nullptr) {
    make_at(root, kPinMemory) = std::move(pinned);
  }
}

void replace_max_grad_norm(Json& root) {
  Json norm = take_at(root, "optimizer.params.max_grad_norm");
  if (norm.is_null()) {
    return;
  }
  const Json* clipping = find_at(root, "gradient_clipping");
  if (clipping != nullptr && *clipping != norm) {
    throw ConfigError("optimizer.params.max_grad_norm: " + norm.describe() + " contradicts gradient_clipping, " +
                      clipping->describe() + "; keep gradient_clipping");
  }
  make_at(root, "gradient_clipping") = std::move(norm);
}

void move_nvme_path(Json& root, std::vector<std::string>& warnings) {
  Json path = take_at(root, kOptimizerNvmePath);
  if (path.is_null()) {
    return;
  }
  if (path.get_if<std::string>() == nullptr && path.get_if<Json::Array>() == nullptr) {
    throw ConfigError(std::string(kOptimizerNvmePath) + ": wanted a folder, or a list of folders, got " +
                      path.describe());
  }
  const Json* own = find_at(root, "offload.nvme_path");
  if (own == nullptr) {
    make_at(root, "offload.nvme_path") = std::move(path);
  } else if (*own != path) {
    warnings.push_back(std::string(kOptimizerNvmePath) + " is passed over: offload.nvme_path holds for all");
  }
}

}  // namespace

void replace_old_spellings(Json& root, std::vector<std::string>& warnings) {
  replace_cpu_offload(root);
  replace_max_grad_norm(root);
  move_nvme_path(root, warnings);
}

}  // namespace spillway::app
