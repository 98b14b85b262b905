// State that some number of ranks saved is taken up by any other.
#include <map>
#include <mutex>
#include <sstream>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <torch/serialize/archive.h>

#include <spillway/offload/error.hpp>
#include <spillway/optimizer/saved_pieces.hpp>

#include "optimizer/saved_state.hpp"
#include "optimizer/sharded_fixture.hpp"

namespace spillway::test::saved_pieces_test {
namespace {

using optimizer::SavedPieces;
using ::testing::HasSubstr;

/// Two that are cut where there are several ranks, one of them with its dimensions in another order in memory, and two
/// that are not.
Tensors parameters() {
  Tensors list;
  for (const std::int64_t numel : {90'000, 300, 5}) list.push_back(at::full({numel}, 1.0F).requires_grad_());
  list.push_back(at::full({100, 700}, 1.0F).t().requires_grad_());
  return list;
}

void advance(Optimizer& optimizer, const Tensors& weights, int begin, int end) {
  for (int step = begin; step < end; ++step) {
    at::Tensor loss;
    for (const at::Tensor& weight : weights) {
      const at::Tensor factors = at::arange(weight.numel(), at::kFloat).add(step).sin().view(weight.sizes());
      loss = loss.defined() ? loss.add(weight.mul(factors).sum()) : weight.mul(factors).sum();
    }
    loss.backward();
    optimizer.step();
  }
}

SavedPieces pieces_of(const std::vector<SavedState>& ranks) {
  SavedPieces pieces;
  for (const SavedState& rank : ranks) {
    for (const auto& [name, tensor] : rank.tensors) {
      const at::Tensor flat = tensor.reshape({-1});
      pieces.add(name, flat.numel(), flat.scalar_type(),
                 [flat](std::int64_t first, std::int64_t count) { return flat.narrow(0, first, count); });
    }
  }
  return pieces;
}

void restore(Optimizer& optimizer, const std::vector<SavedState>& ranks) {
  std::vector<torch::serialize::InputArchive> archives(ranks.size());
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    std::istringstream stream(ranks[rank].counters);
    archives[rank].load_from(stream);
  }
  optimizer.load_counters(archives);
  const SavedPieces pieces = pieces_of(ranks);
  optimizer.restore_state([&](const optimizer::StatePiece& piece) { return pieces.read(piece); });
}

struct Case {
  const char* name;
  bool codes;  ///< State in 8 bits.
};

class Reshard : public ::testing::TestWithParam<Case> {
 protected:
  static OptimizerConfig config(const Rank& rank, StateDevice device) {
    OptimizerConfig config = rank.config(GradientDevice::kCpu, device);
    if (GetParam().codes) {
      config.kernels = UpdateKernels::kFused;
      config.state_format = optimizer::StateFormat::kBlockwise8;
    }
    return config;
  }

  /// What `world_size` ranks save that have taken up what `ranks` saved.
  static std::vector<SavedState> through(int world_size, StateDevice device, const std::vector<SavedState>& ranks) {
    std::vector<SavedState> saved(static_cast<std::size_t>(world_size));
    with_ranks(world_size, [&](const Rank& rank) {
      const auto optimizer = rank.adamw(parameters(), config(rank, device));
      restore(*optimizer, ranks);
      saved[static_cast<std::size_t>(rank.number)] = save_state(*optimizer);
    });
    return saved;
  }
};

TEST_P(Reshard, KeepsEveryBitOverOneTwoThreeAndFiveRanksAndAllTiers) {
  std::vector<SavedState> first(1);
  Tensors weights = parameters();
  Tensors at_the_end;
  with_ranks(1, [&](const Rank& rank) {
    const auto optimizer = rank.adamw(weights, config(rank, StateDevice::kCpu));
    advance(*optimizer, weights, 0, 3);
    first[0] = save_state(*optimizer);
    for (const at::Tensor& weight : weights) at_the_end.push_back(weight.detach().clone().requires_grad_());
    advance(*optimizer, weights, 3, 5);
  });
  std::vector<SavedState> saved = first;
  const StateDevice memory = GetParam().codes ? StateDevice::kCpu : StateDevice::kNone;  // LibTorch has no codes.
  for (const auto& [world_size, device] : {std::pair(2, StateDevice::kNvme),
                                           {3, memory},
                                           {5, StateDevice::kCpu},
                                           {3, StateDevice::kNvme},
                                           {2, memory},
                                           {1, StateDevice::kNvme}}) {
    saved = through(world_size, device, saved);
    std::size_t cut = 0;
    for (const SavedState& rank : saved) {
      for (const auto& [name, tensor] : rank.tensors) cut += name.find('[') != name.npos ? 1 : 0;
    }
    EXPECT_EQ(cut > 0, world_size > 1) << world_size << " ranks";
  }
  ASSERT_EQ(saved[0].tensors.size(), first[0].tensors.size());
  for (const auto& [name, tensor] : first[0].tensors) {
    EXPECT_TRUE(saved[0].tensors.at(name).equal(tensor)) << name;
  }
  with_ranks(1, [&](const Rank& rank) {
    const auto optimizer = rank.adamw(at_the_end, config(rank, StateDevice::kCpu));
    restore(*optimizer, saved);
    advance(*optimizer, at_the_end, 3, 5);
  });
  for (std::size_t i = 0; i < weights.size(); ++i) EXPECT_TRUE(at_the_end[i].equal(weights[i])) << i;
}

TEST_P(Reshard, SaysWhatIsMissingWhereARankIs) {
  std::vector<SavedState> saved(1);
  with_ranks(1, [&](const Rank& rank) {
    const Tensors weights = parameters();
    const auto optimizer = rank.adamw(weights, config(rank, StateDevice::kCpu));
    advance(*optimizer, weights, 0, 1);
    saved[0] = save_state(*optimizer);
  });
  saved = through(2, StateDevice::kCpu, saved);
  for (auto piece = saved[1].tensors.begin(); piece != saved[1].tensors.end();) {
    piece = piece->first.starts_with("0/0") ? saved[1].tensors.erase(piece) : std::next(piece);
  }
  with_ranks(1, [&](const Rank& rank) {
    const auto optimizer = rank.adamw(parameters(), config(rank, StateDevice::kCpu));
    EXPECT_THAT(message_of([&] { restore(*optimizer, saved); }), HasSubstr("has no tensor 0/0.exp_avg"));
  });
}

INSTANTIATE_TEST_SUITE_P(All, Reshard, ::testing::Values(Case{"Float32", false}, Case{"EightBits", true}),
                         [](const auto& which) { return which.param.name; });

}  // namespace
}  // namespace spillway::test::saved_pieces_test
