#include <spillway/optimizer/taken_gradients.hpp>

#include <algorithm>
#include <sstream>
#include <utility>

#include <spillway/distributed/collective.hpp>
#include <spillway/offload/error.hpp>
#include <spillway/optimizer/bucket_message.hpp>

namespace spillway::optimizer {
namespace {

ShardPlanOptions plan_options(const TakenGradientsOptions& options) {
  if ((options.exchange == nullptr) != (options.agreement == nullptr)) {
    throw ConfigError("sharded gradients take two groups over the same ranks: one to exchange on, one to agree on");
  }
  const int world_size = options.exchange == nullptr ? 1 : options.exchange->world_size();
  if (options.exchange != nullptr &&
      (options.exchange == options.agreement || options.agreement->world_size() != world_size ||
       options.agreement->rank() != options.exchange->rank())) {
    throw ConfigError(
        "the group to exchange gradients on and the one to agree on are two groups in which this process "
        "has the same rank");
  }
  ShardPlanOptions plan{options.weights, options.bucket_bytes, ShardGranularity::kBlock};
  if (plan.weights.empty()) {
    plan.weights.assign(static_cast<std::size_t>(world_size), 1.0);
  }
  if (plan.weights.size() != static_cast<std::size_t>(world_size)) {
    throw ConfigError("there are " + std::to_string(plan.weights.size()) + " shard weights for " +
                      std::to_string(world_size) + " ranks; give one for each");
  }
  return plan;
}

// A rank whose options can't be right tells the others.
ShardPlan agreed_plan(const TakenGradientsOptions& options, RankAgreement& agreement) {
  std::optional<ShardPlan> plan;
  const std::exception_ptr failure = failure_of([&] { plan.emplace(plan_options(options)); });
  agreement.meet(Purpose::kWrap, {}, failure);
  return *std::move(plan);
}

}  // namespace

TakenGradients::TakenGradients(const ParamGroups& groups, std::shared_ptr<offload::Tiers> tiers,
                               TakenGradientsOptions options)
    : tiers_(std::move(tiers)),
      options_(std::move(options)),
      agreement_(options_.agreement),
      plan_(agreed_plan(options_, agreement_)),
      sums_(tiers_, options_.sums) {
  exchange_ = std::make_unique<GradientExchange>(plan_, parameters_, sums_, options_.exchange);
  if (agreement_.world_size() > 1) {
    publisher_ = std::make_unique<WeightPublisher>(plan_, parameters_, *options_.exchange);
  }
  rounds_ = std::make_unique<GradientRounds>(
      plan_, [this](std::size_t parameter) { return parameters_[parameter].tensor.requires_grad(); },
      [this](std::size_t bucket, std::vector<at::Tensor> gradients) { launch(bucket, std::move(gradients)); });
  lane_ = std::make_unique<distributed::CollectiveLane>();
  hooks_ = std::make_unique<GradientHooks>(*this);
  const std::exception_ptr failure = failure_of([&] { plan(groups); });
  agreement_.meet(Purpose::kWrap, {}, failure);
  compare_with_other_ranks(0);
}

TakenGradients::~TakenGradients() = default;

bool TakenGradients::is_divisible(const at::Tensor& parameter) const {
  return options_.divisible && options_.divisible(parameter);
}

void TakenGradients::plan(const ParamGroups& groups) {
  const std::size_t first = parameters_.append(groups);
  std::vector<PlannedParameter> planned;
  for (std::size_t p = first; p < parameters_.size(); ++p) {
    const at::Tensor& tensor = parameters_[p].tensor;
    planned.push_back({static_cast<std::uint64_t>(tensor.numel()), tensor.nbytes(), !is_divisible(tensor)});
  }
  plan_.append(planned);
  for (std::size_t p = first; p < parameters_.size(); ++p) {
    if (parameters_[p].tensor.grad().defined()) {
      throw ConfigError(
          parameters_[p].name +
          " has a .grad already, which nobody has taken: wrap, or add its group to the wrapped optimizer, "
          "before the backward pass, or reset it");
    }
    hooks_->add(parameters_[p].tensor, p, parameters_[p].name);
  }
}

// A line for the options and one for each parameter from `first` on: the first that differs is named.
void TakenGradients::compare_with_other_ranks(std::size_t first) {
  std::ostringstream text;
  text << options_.optimizer << " with gradient buckets of " << options_.bucket_bytes << " bytes and shard weights"
       << std::hexfloat;
  for (const double weight : plan_.options().weights) {
    text << ' ' << weight;
  }
  text << '\n';
  for (std::size_t p = first; p < parameters_.size(); ++p) {
    text << parameters_.describe(p) << (is_divisible(parameters_[p].tensor) ? ", owned in blocks" : "") << '\n';
  }
  const std::vector<std::string> texts = agreement_.exchange(text.str());
  for (std::size_t rank = 1; rank < texts.size(); ++rank) {
    std::istringstream ours(texts[0]);
    std::istringstream theirs(texts[rank]);
    std::string our_line;
    std::string their_line;
    while (texts[rank] != texts[0]) {
      const bool have_ours = static_cast<bool>(std::getline(ours, our_line));
      const bool have_theirs = static_cast<bool>(std::getline(theirs, their_line));
      if (!have_ours || !have_theirs || our_line != their_line) {
        throw ConfigError(
            "the ranks do not train the same parameters in the same way; the first difference: rank 0 has " +
            (have_ours ? our_line : "no more") + ", rank " + std::to_string(rank) + " has " +
            (have_theirs ? their_line : "no more") + "; start all ranks with the same program and configuration");
      }
    }
  }
}

void TakenGradients::make_room(const Work& work) {
  const std::exception_ptr failure = failure_of([&] {
    make_room_for_sums(0);  // First: the state takes what is left, where it may go to disk.
    work();
  });
  agreement_.meet(Purpose::kWrap, {}, failure);
}

void TakenGradients::make_room_for_sums(std::size_t first_bucket) {
  std::vector<SumCell> cells;
  for (std::size_t b = first_bucket; b < plan_.buckets().size(); ++b) {
    SumCell cell{b, {}, 0, nullptr, {}};
    for (const ShardPiece& piece : plan_.buckets()[b].pieces) {
      const ListedParameter& parameter = parameters_[piece.parameter];
      if (piece.owner == agreement_.rank() && parameter.tensor.requires_grad()) {
        cell.slots.push_back(make_sum_slot(piece, parameter));
      }
    }
    if (!cell.slots.empty()) {
      cells.push_back(std::move(cell));
    }
  }
  if (publisher_ != nullptr) {
    staging_ = {};
    staging_ = tiers_->host().reserve(std::max(exchange_->staging_bytes(), publisher_->staging_bytes()),
                                      "gradients and weights on their way");
  }
  sums_.make_room(std::move(cells));
}

std::optional<OwnedShard> TakenGradients::shard_of(const at::Tensor& parameter) const {
  const ShardPiece* const piece = piece_of(parameter, agreement_.rank());
  if (piece == nullptr) {
    return std::nullopt;
  }
  OwnedShard shard{plan_.bucket_of(piece->parameter), std::nullopt};
  if (is_part(*piece, parameters_[piece->parameter])) {
    shard.piece = {piece->begin, piece->end};
  }
  return shard;
}

const ShardPiece* TakenGradients::piece_of(const at::Tensor& parameter, int rank) const {
  const std::optional<std::size_t> number = parameters_.find(parameter);
  return number ? plan_.piece_of(*number, rank) : nullptr;
}

bool TakenGradients::has_gradient(const at::Tensor& parameter) const {
  const std::optional<std::size_t> number = parameters_.find(parameter);
  const SumSlot* const slot = number ? sums_.find(*number) : nullptr;
  return slot != nullptr && slot->has_gradient();
}

void TakenGradients::take(std::size_t parameter, at::Tensor gradient) {
  // Copied here, on the stream that made it, which waits: what is taken is in host memory.
  rounds_->take(parameter, gradient.is_cpu() ? std::move(gradient) : gradient.to(at::kCPU));
}

void TakenGradients::backward_ended() { rounds_->end(); }

void TakenGradients::launch(std::size_t bucket, std::vector<at::Tensor> gradients) {
  lane_->submit(
      [this, bucket, gradients = std::move(gradients)]() mutable { exchange_->run(bucket, std::move(gradients)); });
}

void TakenGradients::catch_up(std::int64_t rounds) {
  while (rounds_->completed() < static_cast<std::uint64_t>(rounds)) {
    rounds_->run_empty();
  }
}

std::exception_ptr TakenGradients::wait_for_lane() {
  const std::exception_ptr failure = failure_of([&] { lane_->wait(); });
  return failure != nullptr ? failure : exchange_->failure();
}

void TakenGradients::synchronise(Purpose purpose, const ParamGroups& groups, const Work& before, const Work& after) {
  const std::exception_ptr failure = failure_of([&] {
    if (before) {
      before();
    }
    if (purpose != Purpose::kZeroGrad) {
      parameters_.check_unchanged();
    }
  });
  rounds_->end();
  const std::size_t planned = parameters_.size();
  const std::vector<RankNews> news =
      agreement_.meet(purpose,
                      {static_cast<std::int64_t>(rounds_->completed()),
                       static_cast<std::int64_t>(planned + parameters_.count_new(groups)), 0},
                      failure);
  catch_up(std::max_element(news.begin(), news.end(), [](const RankNews& a, const RankNews& b) {
             return a.rounds < b.rounds;
           })->rounds);
  const bool grows = std::any_of(news.begin(), news.end(), [&](const RankNews& each) {
    return each.parameters != static_cast<std::int64_t>(planned);
  });
  fatal_ = true;  // Unless all of this ends well.
  agreement_.meet(purpose, {}, wait_for_lane());
  if (grows) {
    const std::size_t first_bucket = plan_.buckets().size();
    const std::exception_ptr refusal = failure_of([&] {
      plan(groups);
      make_room_for_sums(first_bucket);
    });
    agreement_.meet(purpose, {}, refusal);
    compare_with_other_ranks(planned);
  }
  fatal_ = false;
  if (rounds_->completed() != seen_rounds_) {
    measured_.reset();
  }
  seen_rounds_ = rounds_->completed();
  if (purpose != Purpose::kZeroGrad) {
    refuse_late_gradients();
  }
  if (after) {
    agreement_.meet(purpose, {}, failure_of(after));
  }
}

// Their sums would be scaled, or not, with what came before.
void TakenGradients::refuse_late_gradients() const {
  if (!transforms_.empty() && transformed_rounds_ != seen_rounds_) {
    throw Error(
        "gradients came after the ones before them were unscaled or clipped: do that once, behind the last backward "
        "pass "
        "of a step, or drop all of them with zero_grad()");
  }
}

void TakenGradients::drop(bool keep_zeros) {
  sums_.drop(keep_zeros);
  transforms_.clear();
  measured_.reset();
}

void TakenGradients::use_up() {
  sums_.use_up();
  transforms_.clear();
  measured_.reset();
}

}  // namespace spillway::optimizer
