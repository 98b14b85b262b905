#include <spillway/app/report/metrics.hpp>

#include <cerrno>
#include <string>
#include <system_error>
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

/// The bytes of the first `count` lines; of all whole ones where there are fewer.
std::uintmax_t length_of_lines(const std::filesystem::path& path, std::uint64_t count) {
  std::ifstream file(path, std::ios::binary);
  std::uintmax_t length = 0;
  for (std::string line; count > 0 && std::getline(file, line) && !file.eof(); --count) length += line.size() + 1;
  return length;
}

void cut(const std::filesystem::path& path, std::uintmax_t length) {
  std::error_code error;
  std::filesystem::resize_file(path, length, error);
  if (error && error != std::errc::no_such_file_or_directory) {
    errno = error.value();
    fail("truncate", path, length);
  }
}

}  // namespace

MetricsWriter::MetricsWriter(std::filesystem::path path, std::uint64_t keep_lines) : path_(std::move(path)) {
  if (keep_lines > 0) cut(path_, length_of_lines(path_, keep_lines));
  file_.open(path_, keep_lines > 0 ? std::ios::app : std::ios::trunc);
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
