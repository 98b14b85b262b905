#include <spillway/app/report/metrics.hpp>

#include <cerrno>
#include <string>
#include <utility>

#include <spillway/app/config/json.hpp>
#include <spillway/offload/error.hpp>

namespace spillway::app {
namespace {

[[noreturn]] void fail(const std::string& operation, const std::filesystem::path& path, std::uint64_t bytes) {
  throw IoError({.operation = operation,
                 .path = path.string(),
                 .bytes = bytes,
                 .error_number = errno,
                 .advice = "the run's folder (--out) must be writable and have space"});
}

}  // namespace

MetricsWriter::MetricsWriter(std::filesystem::path path) : path_(std::move(path)), file_(path_, std::ios::trunc) {
  if (!file_) {
    fail("open", path_, 0);
  }
}

void MetricsWriter::write(const StepMetrics& metrics) {
  Json::Object line{
      {"step", metrics.step},
      {"epoch", metrics.epoch},
      {"loss", metrics.loss},
      {"lr", metrics.lr},
      {"grad_norm", metrics.grad_norm},
      {"loss_scale", metrics.loss_scale},
      {"skipped", metrics.skipped},
      {"step_s", metrics.step_s},
      {"stall_s", metrics.stall_s},
      {"samples_per_s", metrics.samples_per_s},
      {"read_bytes", metrics.read_bytes},
      {"write_bytes", metrics.write_bytes},
      {"device_bytes", metrics.device_bytes},
      {"host_bytes", metrics.host_bytes},
      {"disk_bytes", metrics.disk_bytes},
  };
  if (metrics.accuracy) {
    line.emplace_back("accuracy",
                      Json::Object{{"few_label", metrics.accuracy->few_label}, {"knn", metrics.accuracy->knn}});
  }
  const std::string text = Json(std::move(line)).dump() + "\n";
  file_ << text << std::flush;
  if (!file_) {
    fail("write", path_, text.size());
  }
}

}  // namespace spillway::app
