#include <sstream>

#include <spillway/offload/error.hpp>
#include <spillway/queue/loss_arguments.hpp>
#include <spillway/queue/negative_bank.hpp>

namespace spillway::queue {

namespace {

std::string size_text(std::int64_t size, const char* any) {
  return size == WantedRows::kAny ? any : std::to_string(size);
}

}  // namespace

at::ScalarType compute_dtype(at::ScalarType dtype) noexcept { return dtype == at::kDouble ? at::kDouble : at::kFloat; }

std::string tensor_text(const at::Tensor& tensor) {
  if (!tensor.defined()) return "undefined";
  std::ostringstream text;
  text << tensor.sizes() << " " << tensor.dtype().name() << " on " << tensor.device();
  return text.str();
}

void check_rows(const char* loss, const char* name, const at::Tensor& tensor, const WantedRows& wanted) {
  const auto fits = [](std::int64_t size, std::int64_t wanted_size) {
    return wanted_size == WantedRows::kAny || size == wanted_size;
  };
  if (tensor.defined() && tensor.dim() == 2 && fits(tensor.size(0), wanted.rows) && fits(tensor.size(1), wanted.dim) &&
      tensor.is_floating_point() && tensor.device().is_cpu()) {
    return;
  }
  throw ConfigError(std::string(loss) + ": " + name + " is " + tensor_text(tensor) + ", wanted [" +
                    size_text(wanted.rows, "rows") + ", " + size_text(wanted.dim, "dimension") +
                    "] of a floating-point dtype on cpu" + wanted.why);
}

void check_bank_labels(const char* loss, const NegativeBank& bank) {
  if (bank.has_labels()) return;
  throw ConfigError(std::string(loss) +
                    ": query_labels were given, and the bank keeps no labels to compare them with: set "
                    "BankOptions::labels and enqueue keys with theirs");
}

void check_row_labels(const char* loss, const char* name, const at::Tensor& labels, std::int64_t rows) {
  if (labels.defined() && labels.dim() == 1 && labels.size(0) == rows && labels.scalar_type() == at::kLong &&
      labels.device().is_cpu()) {
    return;
  }
  throw ConfigError(std::string(loss) + ": " + name + " is " + tensor_text(labels) + ", wanted [" +
                    std::to_string(rows) + "] int64 on cpu: one label for each row");
}

}  // namespace spillway::queue
