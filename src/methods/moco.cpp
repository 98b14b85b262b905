#include <spillway/app/methods/moco.hpp>

#include <utility>

#include <ATen/ops/zeros.h>

#include <spillway/app/methods/parameter_precision.hpp>
#include <spillway/queue/streaming_loss.hpp>

namespace spillway::app {
namespace {

at::ScalarType scalar_type(BankDtype dtype) {
  switch (dtype) {
    case BankDtype::kFp16:
      return at::kHalf;
    case BankDtype::kBf16:
      return at::kBFloat16;
    case BankDtype::kFp32:
      return at::kFloat;
    case BankDtype::kFp64:
      return at::kDouble;
    case BankDtype::kInt8:
      return at::kChar;
  }
  return at::kHalf;
}

queue::RankBankOptions shared_options(const Config& config) {
  queue::RankBankOptions options;
  options.bank = bank_options(config);
  return options;
}

}  // namespace

queue::BankOptions bank_options(const Config& config) {
  const BankConfig& bank = config.contrastive.bank;
  queue::BankOptions options;
  const queue::LengthSchedule length = bank_length(config);
  options.capacity = length.rows_at(0);
  options.capacity_max = length.longest();
  options.labels = config.contrastive.exclude_same_class;
  options.dim = static_cast<std::int64_t>(config.contrastive.projection_dim);
  options.dtype = scalar_type(bank.dtype);
  options.segment_rows = static_cast<std::int64_t>(bank.segment_rows);
  options.disk_allowed = bank.device == OffloadDevice::kNvme;
  const bool limited = bank.device != OffloadDevice::kNone && bank.host_bytes != 0;
  options.host_bytes = limited ? bank.host_bytes : config.offload.host_bytes;
  return options;
}

queue::LengthSchedule bank_length(const Config& config) {
  const QueueScheduleConfig& schedule = config.contrastive.queue_schedule;
  queue::LengthSchedule length;
  length.last = static_cast<std::int64_t>(config.contrastive.queue_size);
  length.first = schedule.steps == 0 ? length.last : static_cast<std::int64_t>(schedule.first_rows);
  length.steps = static_cast<std::int64_t>(schedule.steps);
  length.growth = schedule.growth == QueueGrowth::kLinear ? queue::LengthSchedule::Growth::kLinear
                                                          : queue::LengthSchedule::Growth::kGeometric;
  return length;
}

Moco::Moco(const Config& config, ImageGeometry geometry, std::shared_ptr<offload::Tiers> tiers,
           distributed::Collective* ranks)
    : TrainingMethod(make_network(config, geometry)),
      temperature_(config.contrastive),
      length_(bank_length(config)),
      momentum_(config.contrastive),
      exclude_same_class_(config.contrastive.exclude_same_class),
      momentum_encoder_(make_network(config, geometry), network(), config.contrastive.momentum),
      ranks_(ranks),
      shared_(ranks == nullptr ? nullptr : std::make_unique<queue::RankBank>(tiers, shared_options(config), *ranks)),
      own_(shared_ ? nullptr : std::make_unique<queue::NegativeBank>(std::move(tiers), bank_options(config))),
      window_(shared_ ? queue::KeyWindow(*shared_) : queue::KeyWindow(*own_)) {}

std::vector<NamedTensor> Moco::state() const {
  std::vector<NamedTensor> state = TrainingMethod::state();
  for (NamedTensor& tensor : momentum_encoder_.state()) state.push_back(std::move(tensor));
  return state;
}

at::Tensor Moco::loss(const ViewPair& batch) {
  const std::int64_t rows = batch.view1.size(0);
  const at::Tensor order = shuffled_rows(ranks_ == nullptr ? rows : batch.all_rows, batch.key_order);
  const at::Tensor k = ranks_ == nullptr
                           ? momentum_encoder_.encode(batch.view1, order)
                           : momentum_encoder_.encode(batch.view1, queue::RankShuffle(rows, order, *ranks_));
  if (rows == 0) return at::zeros({}, k.options()).requires_grad_();
  const at::Tensor q = network().project(batch.view0);
  const at::Tensor labels = exclude_same_class_ ? batch.labels : at::Tensor();
  queue::InfoNceOptions options;
  options.query_labels = labels;
  const at::Tensor loss = queue::info_nce(q, k, *bank(), temperature_.get(), options).loss;
  window_.add(k, labels);
  return loss;
}

std::vector<NamedTensor> Moco::parameters() const {
  std::vector<NamedTensor> all = TrainingMethod::parameters();
  for (NamedTensor& parameter : temperature_.parameters()) all.push_back(std::move(parameter));
  return all;
}

std::vector<NamedTensor> Moco::buffers() const {
  std::vector<NamedTensor> all = TrainingMethod::buffers();
  for (NamedTensor& buffer : momentum_encoder_.network().buffers()) all.push_back(std::move(buffer));
  return all;
}

void Moco::begin_step(std::uint64_t step, std::uint64_t steps) {
  const std::int64_t length = length_.rows_at(static_cast<std::int64_t>(step));
  shared_ ? shared_->resize(length) : own_->resize(length);
  momentum_encoder_.set_momentum(momentum_.at(step, steps));
}

void Moco::finish_window(bool stepped) {
  if (stepped) {
    temperature_.bound();
    momentum_encoder_.follow();
  }
  window_.finish(stepped);
}

}  // namespace spillway::app
