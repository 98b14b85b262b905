#include <spillway/optimizer/gradient_rounds.hpp>

#include <spillway/offload/check.hpp>

namespace spillway::optimizer {

GradientRounds::GradientRounds(const ShardPlan& plan, Expects expects, Launch launch)
    : plan_(plan), expects_(std::move(expects)), launch_(std::move(launch)) {}

void GradientRounds::take(std::size_t parameter, at::Tensor gradient) {
  const std::lock_guard lock(mutex_);
  if (!open_) {
    begin();
  }
  put(parameter, std::move(gradient));
  launch_complete();
}

void GradientRounds::end() {
  const std::lock_guard lock(mutex_);
  if (!open_) {
    return;
  }
  finish();
  while (!waiting_.empty()) {
    begin();
    for (Waiting& each : std::exchange(waiting_, {})) {
      put(each.parameter, std::move(each.gradient));
    }
    finish();
  }
}

void GradientRounds::run_empty() {
  const std::lock_guard lock(mutex_);
  SPILLWAY_CHECK(!open_, "a round that is open comes first");
  begin();
  finish();
}

std::uint64_t GradientRounds::completed() const {
  const std::lock_guard lock(mutex_);
  return completed_;
}

void GradientRounds::begin() {
  open_ = true;
  next_bucket_ = 0;
  gradients_.assign(plan_.parameters(), at::Tensor());
  taken_.assign(plan_.parameters(), false);
  expected_.assign(plan_.parameters(), false);
  missing_.assign(plan_.buckets().size(), 0);
  for (std::size_t parameter = 0; parameter < plan_.parameters(); ++parameter) {
    expected_[parameter] = expects_(parameter);
    missing_[plan_.bucket_of(parameter)] += expected_[parameter] ? 1 : 0;
  }
}

void GradientRounds::put(std::size_t parameter, at::Tensor gradient) {
  const std::size_t bucket = plan_.bucket_of(parameter);
  if (taken_[parameter] || bucket < next_bucket_) {
    waiting_.push_back({parameter, std::move(gradient)});
    return;
  }
  taken_[parameter] = true;
  gradients_[parameter] = std::move(gradient);
  missing_[bucket] -= expected_[parameter] ? 1 : 0;
}

void GradientRounds::launch_complete() {
  while (next_bucket_ < missing_.size() && missing_[next_bucket_] == 0) {
    launch_next();
  }
}

void GradientRounds::launch_next() {
  std::vector<at::Tensor> gradients;
  for (const std::size_t parameter : plan_.buckets()[next_bucket_].parameters) {
    gradients.push_back(std::move(gradients_[parameter]));
  }
  launch_(next_bucket_++, std::move(gradients));
}

void GradientRounds::finish() {
  while (next_bucket_ < missing_.size()) {
    launch_next();
  }
  open_ = false;
  ++completed_;
}

}  // namespace spillway::optimizer
