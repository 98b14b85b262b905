#include <utility>

#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>

#include <spillway/offload/error.hpp>
#include <spillway/queue/key_window.hpp>
#include <spillway/queue/negative_bank.hpp>
#include <spillway/queue/rank_bank.hpp>

namespace spillway::queue {

KeyWindow::KeyWindow(NegativeBank& bank)
    : local_(bank),
      enqueue_([&bank](const at::Tensor& keys, const at::Tensor& labels) { bank.enqueue(keys, labels); }) {}

KeyWindow::KeyWindow(RankBank& bank)
    : local_(bank.local()),
      enqueue_([&bank](const at::Tensor& keys, const at::Tensor& labels) { bank.enqueue(keys, labels); }) {}

void KeyWindow::prefetch() {
  check_version();
  local_.prefetch();
}

void KeyWindow::add(const at::Tensor& keys, const at::Tensor& labels) {
  check_version();
  keys_.push_back(keys.detach());
  if (labels.defined()) labels_.push_back(labels);
}

void KeyWindow::finish(bool stepped) {
  const std::vector<at::Tensor> keys = std::exchange(keys_, {});
  const std::vector<at::Tensor> labels = std::exchange(labels_, {});
  if (open_) check_version();
  open_ = false;
  if (!stepped) return;
  // Ranks without keys take part too: the others wait for them.
  const at::Tensor none = at::empty({0, local_.dim()}, at::TensorOptions(at::kFloat));
  const at::Tensor no_labels = local_.has_labels() ? at::empty({0}, at::TensorOptions(at::kLong)) : at::Tensor();
  enqueue_(keys.empty() ? none : at::cat(keys), labels.empty() ? no_labels : at::cat(labels));
}

std::int64_t KeyWindow::pending_rows() const {
  std::int64_t rows = 0;
  for (const at::Tensor& keys : keys_) rows += keys.size(0);
  return rows;
}

void KeyWindow::check_version() {
  if (!std::exchange(open_, true)) version_ = local_.version();
  if (local_.version() == version_) return;
  open_ = false;
  keys_.clear();
  labels_.clear();
  throw ConfigError(local_.options().name +
                    ": the bank was changed within a window of gradient accumulation, so that its micro-batches would "
                    "meet different negatives; enqueue keys through the window, and resize or clear between windows");
}

}  // namespace spillway::queue
