#include <ATen/ops/nonzero.h>

#include <spillway/offload/error.hpp>
#include <spillway/queue/key_admission.hpp>
#include <spillway/queue/loss_arguments.hpp>

namespace spillway::queue {

namespace {

void check_keys(const BankOptions& options, const at::Tensor& keys) {
  const bool fits = keys.defined() && keys.dim() == 2 && keys.size(1) == options.dim && keys.is_floating_point() &&
                    keys.device().is_cpu() && keys.layout() == at::kStrided;
  if (fits) return;
  throw ConfigError(options.name + ": cannot enqueue keys of shape " + tensor_text(keys) + "; wanted [n, " +
                    std::to_string(options.dim) +
                    "], a floating-point dtype on cpu: give the bank the dimension of the encoder's output");
}

void check_labels(const BankOptions& options, const at::Tensor& labels, std::int64_t rows) {
  if (labels.defined() != options.labels) {
    throw ConfigError(options.name + (options.labels ? ": keys come without labels, and the bank keeps a label for "
                                                       "each row: pass labels, or leave BankOptions::labels off"
                                                     : ": keys come with labels, and the bank has no place for "
                                                       "them: set BankOptions::labels"));
  }
  if (labels.defined()) check_row_labels(options.name.c_str(), "labels", labels, rows);
}

}  // namespace

AdmittedKeys admit_keys(const BankOptions& options, const at::Tensor& keys, const at::Tensor& labels) {
  check_keys(options, keys);
  check_labels(options, labels, keys.size(0));
  AdmittedKeys admitted;
  admitted.rows = RowFormat(options.dtype, options.dim).round(keys);
  admitted.rows.labels = labels;
  const at::Tensor finite = RowFormat::finite(admitted.rows);
  admitted.rejected = keys.size(0) - finite.sum().item<std::int64_t>();
  if (admitted.rejected == 0) return admitted;
  admitted.first_rejected = at::nonzero(finite.logical_not())[0].item<std::int64_t>();
  admitted.rows = admitted.rows.select(at::nonzero(finite).squeeze(1));
  return admitted;
}

void check_stored(const BankOptions& options, const StoredRows& rows) {
  const at::Tensor& values = rows.values;
  const bool fits = values.defined() && values.dim() == 2 && values.size(1) == options.dim &&
                    values.scalar_type() == options.dtype && values.device().is_cpu();
  const auto beside = [&](const at::Tensor& tensor, bool wanted, at::ScalarType dtype) {
    if (tensor.defined() != wanted) return false;
    return !wanted || (tensor.dim() == 1 && tensor.size(0) == values.size(0) && tensor.scalar_type() == dtype);
  };
  if (fits && beside(rows.scales, options.dtype == at::kChar, at::kFloat) &&
      beside(rows.labels, options.labels, at::kLong)) {
    return;
  }
  throw ConfigError(options.name + ": cannot take stored rows of shape " + tensor_text(values) + ", scales " +
                    tensor_text(rows.scales) + ", labels " + tensor_text(rows.labels) + "; wanted [n, " +
                    std::to_string(options.dim) + "] " + c10::toString(options.dtype) +
                    (options.dtype == at::kChar ? ", [n] Float" : ", no scales") +
                    (options.labels ? ", [n] Long" : ", no labels") + ": those of a bank of the same kind");
}

std::string rejection_warning(const BankOptions& options, const AdmittedKeys& keys, std::int64_t batch_rows) {
  return options.name + ": warning: row " + std::to_string(keys.first_rejected) + " of a batch of " +
         std::to_string(batch_rows) + " keys is not finite as " + c10::toString(options.dtype) + " (" +
         std::to_string(keys.rejected) + " such rows); such rows are dropped and counted, this is said once";
}

}  // namespace spillway::queue
