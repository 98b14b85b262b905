#include <spillway/optimizer/rank_agreement.hpp>

#include <algorithm>
#include <cstddef>
#include <cstring>

#include <ATen/ops/empty.h>
#include <ATen/ops/tensor.h>

#include <spillway/distributed/collective.hpp>
#include <spillway/offload/error.hpp>

namespace spillway::optimizer {
namespace {

// A row of a meeting.
enum MeetingField : std::int64_t { kPurpose, kRounds, kParameters, kFlag, kFailed, kFields };

const char* name_of_purpose(std::int64_t purpose) {
  switch (static_cast<Purpose>(purpose)) {
    case Purpose::kWrap:
      return "wrap()";
    case Purpose::kStep:
      return "step()";
    case Purpose::kZeroGrad:
      return "zero_grad()";
    case Purpose::kUnscale:
      return "unscale_()";
    case Purpose::kClip:
      return "clip_grad_norm_()";
    case Purpose::kAddGroup:
      return "add_param_group()";
    case Purpose::kSave:
      return "save()";
    case Purpose::kLoad:
      return "load()";
  }
  return "another call";
}

}  // namespace

std::string rank_failed(int rank, Purpose purpose, const std::string& reason) {
  return "rank " + std::to_string(rank) + " failed in " + name_of_purpose(static_cast<std::int64_t>(purpose)) + ": " +
         reason;
}

std::exception_ptr failure_of(const std::function<void()>& work) {
  try {
    if (work) {
      work();
    }
    return nullptr;
  } catch (...) {
    return std::current_exception();
  }
}

std::string message_of(const std::exception_ptr& failure) {
  try {
    std::rethrow_exception(failure);
  } catch (const std::exception& error) {
    return error.what();
  } catch (...) {
    return "an exception of unknown type";
  }
}

int RankAgreement::rank() const { return group_ == nullptr ? 0 : group_->rank(); }
int RankAgreement::world_size() const { return group_ == nullptr ? 1 : group_->world_size(); }

std::vector<at::Tensor> RankAgreement::gather_all(const at::Tensor& mine) {
  if (group_ == nullptr) {
    return {mine};
  }
  try {
    return group_->all_gather(mine);
  } catch (...) {
    over_ = true;
    throw;
  }
}

std::vector<RankNews> RankAgreement::meet(Purpose purpose, const RankNews& news, const std::exception_ptr& failure) {
  const auto own_purpose = static_cast<std::int64_t>(purpose);
  at::Tensor row = at::empty({kFields}, at::kLong);
  auto* const fields = row.mutable_data_ptr<std::int64_t>();
  fields[kPurpose] = own_purpose;
  fields[kRounds] = news.rounds;
  fields[kParameters] = news.parameters;
  fields[kFlag] = news.flag;
  fields[kFailed] = failure != nullptr ? 1 : 0;
  const std::vector<at::Tensor> rows = gather_all(row);
  std::vector<RankNews> all;
  std::size_t failed = rows.size();
  std::size_t other = rows.size();
  for (std::size_t r = rows.size(); r-- > 0;) {
    const auto* const theirs = rows[r].const_data_ptr<std::int64_t>();
    all.push_back({theirs[kRounds], theirs[kParameters], theirs[kFlag]});
    failed = theirs[kFailed] != 0 ? r : failed;
    other = theirs[kPurpose] != own_purpose ? r : other;
  }
  if (failed < rows.size()) {
    const std::vector<std::string> reasons = exchange(failure != nullptr ? message_of(failure) : "");
    if (failure != nullptr) {
      std::rethrow_exception(failure);
    }
    const auto their_purpose = static_cast<Purpose>(rows[failed].const_data_ptr<std::int64_t>()[kPurpose]);
    throw Error(rank_failed(static_cast<int>(failed), their_purpose, reasons[failed]));
  }
  if (other < rows.size()) {
    over_ = true;
    throw Error("rank " + std::to_string(rank()) + " calls " + name_of_purpose(own_purpose) + " where rank " +
                std::to_string(other) + " calls " +
                name_of_purpose(rows[other].const_data_ptr<std::int64_t>()[kPurpose]) +
                "; all ranks make the same calls in the same order");
  }
  std::reverse(all.begin(), all.end());
  return all;
}

std::vector<std::string> RankAgreement::exchange(const std::string& text) {
  at::Tensor bytes = at::empty({static_cast<std::int64_t>(text.size())}, at::kByte);
  if (!text.empty()) {
    std::memcpy(bytes.mutable_data_ptr(), text.data(), text.size());
  }
  std::vector<std::string> texts;
  for (const at::Tensor& theirs : gather_all(bytes)) {
    texts.emplace_back(static_cast<const char*>(theirs.const_data_ptr()), static_cast<std::size_t>(theirs.numel()));
  }
  return texts;
}

std::vector<at::Tensor> RankAgreement::gather(const at::Tensor& numbers) { return gather_all(numbers); }

}  // namespace spillway::optimizer
