#include "distributed/conformance.hpp"

#include <algorithm>
#include <cstdint>
#include <functional>
#include <string>

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <spillway/offload/error.hpp>

namespace spillway::test {
namespace {

using distributed::Collective;
using distributed::Reduction;
using ::testing::HasSubstr;

/// The tensor of one rank: every rank can work out what the others hold.
at::Tensor values_of(int rank, at::IntArrayRef sizes, at::ScalarType dtype) {
  auto generator = at::detail::createCPUGenerator(static_cast<std::uint64_t>(100 + rank));
  return (at::randn(sizes, generator, at::TensorOptions(at::kDouble)) * 100).to(dtype);
}

void expect_error(const std::function<void()>& action, const std::string& text) {
  try {
    action();
    ADD_FAILURE() << "no error, wanted one that says: " << text;
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr(text));
  }
}

at::Tensor added_in_rank_order(const Collective& group, at::IntArrayRef sizes, at::ScalarType dtype,
                               at::ScalarType wide) {
  at::Tensor sum = values_of(0, sizes, dtype).to(wide);
  for (int rank = 1; rank < group.world_size(); ++rank) {
    sum = sum + values_of(rank, sizes, dtype).to(wide);
  }
  return sum;
}

void adds_in_rank_order(Collective& group) {
  for (const auto dtype : {at::kFloat, at::kDouble, at::kLong, at::kByte, at::kComplexFloat}) {
    for (const std::int64_t numel : {1, 7, 10'007}) {
      at::Tensor tensor = values_of(group.rank(), {numel}, dtype);
      group.all_reduce(tensor, Reduction::Sum);
      EXPECT_TRUE(at::equal(tensor, added_in_rank_order(group, {numel}, dtype, dtype))) << dtype << " x " << numel;
    }
  }
}

void takes_the_mean(Collective& group) {
  at::Tensor tensor = values_of(group.rank(), {33, 5}, at::kFloat);
  group.all_reduce(tensor, Reduction::Mean);
  EXPECT_TRUE(at::equal(tensor, added_in_rank_order(group, {33, 5}, at::kFloat, at::kFloat) / group.world_size()));
}

void rounds_16_bit_sums_once(Collective& group) {
  for (const auto dtype : {at::kHalf, at::kBFloat16}) {
    at::Tensor tensor = values_of(group.rank(), {1001}, dtype);
    group.all_reduce(tensor, Reduction::Mean);
    const at::Tensor wide = added_in_rank_order(group, {1001}, dtype, at::kFloat) / group.world_size();
    EXPECT_TRUE(at::equal(tensor, wide.to(dtype))) << dtype;
  }
}

void keeps_strides_and_memory(Collective& group) {
  const at::Tensor memory = values_of(group.rank(), {6, 4}, at::kFloat);
  at::Tensor view = memory.t();
  group.all_reduce(view, Reduction::Sum);
  EXPECT_TRUE(at::equal(memory, added_in_rank_order(group, {6, 4}, at::kFloat, at::kFloat)));

  at::Tensor strided = at::full({2, 10}, group.rank(), at::kFloat).slice(1, 0, 10, 3);
  group.broadcast(strided, group.world_size() - 1);
  EXPECT_TRUE(at::equal(strided, at::full({2, 4}, group.world_size() - 1, at::kFloat)));
}

void changes_leaves_that_require_gradients(Collective& group) {
  at::Tensor leaf = at::ones({3}).requires_grad_();
  group.all_reduce(leaf, Reduction::Sum);
  EXPECT_TRUE(leaf.is_leaf());
  EXPECT_TRUE(at::equal(leaf.detach(), at::full({3}, static_cast<float>(group.world_size()))));
}

void gathers_in_rank_order(Collective& group) {
  for (const auto dtype : {at::kFloat, at::kBFloat16, at::kLong, at::kBool}) {
    const auto parts = group.all_gather(values_of(group.rank(), {3, 2}, dtype));
    ASSERT_EQ(parts.size(), static_cast<std::size_t>(group.world_size()));
    for (int rank = 0; rank < group.world_size(); ++rank) {
      EXPECT_TRUE(at::equal(parts[static_cast<std::size_t>(rank)], values_of(rank, {3, 2}, dtype))) << dtype << rank;
    }
  }
  EXPECT_EQ(group.all_gather(at::full({}, group.rank(), at::kInt)).back().item<int>(), group.world_size() - 1);
}

void gathers_pieces_of_different_sizes(Collective& group) {
  // Rank 0 has no rows, so that an empty piece is among them.
  const auto parts = group.all_gather(values_of(group.rank(), {5 * group.rank(), 3}, at::kDouble).t().contiguous().t());
  for (int rank = 0; rank < group.world_size(); ++rank) {
    EXPECT_TRUE(at::equal(parts[static_cast<std::size_t>(rank)], values_of(rank, {5 * rank, 3}, at::kDouble)));
  }
}

void gives_gathered_tensors_memory_of_their_own(Collective& group) {
  const at::Tensor mine = at::zeros({4});
  auto parts = group.all_gather(mine);
  parts[static_cast<std::size_t>(group.rank())].fill_(1);
  EXPECT_TRUE(at::equal(mine, at::zeros({4})));
}

void broadcasts_from_every_root(Collective& group) {
  for (int root = 0; root < group.world_size(); ++root) {
    at::Tensor tensor = values_of(group.rank(), {17, 3}, at::kHalf);
    group.broadcast(tensor, root);
    EXPECT_TRUE(at::equal(tensor, values_of(root, {17, 3}, at::kHalf))) << root;
  }
}

/// What rank `from` has for rank `to`: of another size for each pair, none for the next rank.
at::Tensor parcel(const Collective& group, int from, int to, at::ScalarType dtype) {
  const bool none = to == (from + 1) % group.world_size();
  return values_of(from * 10 + to, {none ? 0 : 3 + 2 * from + to, 2}, dtype);
}

void exchanges_pieces_of_any_size_between_all_pairs(Collective& group) {
  for (const auto dtype : {at::kFloat, at::kBFloat16, at::kByte}) {
    std::vector<at::Tensor> outgoing;
    for (int to = 0; to < group.world_size(); ++to) {
      outgoing.push_back(parcel(group, group.rank(), to, dtype).t());
    }
    const auto received = group.all_to_all(outgoing);
    ASSERT_EQ(received.size(), static_cast<std::size_t>(group.world_size()));
    for (int from = 0; from < group.world_size(); ++from) {
      const at::Tensor wanted = parcel(group, from, group.rank(), dtype).t().reshape({-1});
      EXPECT_TRUE(at::equal(received[static_cast<std::size_t>(from)], wanted)) << dtype << " from " << from;
    }
  }
}

void gives_exchanged_tensors_memory_of_their_own(Collective& group) {
  const std::vector<at::Tensor> outgoing(static_cast<std::size_t>(group.world_size()), at::zeros({4}));
  for (at::Tensor& part : group.all_to_all(outgoing)) {
    part.fill_(1);
  }
  EXPECT_TRUE(at::equal(outgoing.front(), at::zeros({4})));
}

void moves_empty_tensors(Collective& group) {
  at::Tensor empty = at::empty({0, 5});
  group.all_reduce(empty, Reduction::Mean);
  group.broadcast(empty, 0);
  EXPECT_EQ(group.all_gather(empty).front().sizes(), (at::IntArrayRef{0, 5}));
  const std::vector<at::Tensor> nothing(static_cast<std::size_t>(group.world_size()), empty);
  EXPECT_EQ(group.all_to_all(nothing).back().sizes(), (at::IntArrayRef{0}));
}

void refuses_wrong_arguments_and_lives_on(Collective& group) {
  at::Tensor undefined;
  at::Tensor integers = at::ones({2}, at::kLong);
  at::Tensor booleans = at::ones({2}, at::kBool);
  at::Tensor sparse = at::ones({2, 2}).to_sparse();
  expect_error([&] { group.all_reduce(undefined, Reduction::Sum); }, "undefined");
  expect_error([&] { group.all_reduce(integers, Reduction::Mean); }, "Long has no mean");
  expect_error([&] { group.all_reduce(booleans, Reduction::Sum); }, "Bool has no sum");
  expect_error([&] { (void)group.all_gather(sparse); }, "sparse");
  const std::vector<at::Tensor> too_many(static_cast<std::size_t>(group.world_size()) + 1, integers);
  expect_error([&] { (void)group.all_to_all(too_many); }, "one for each");
  std::vector<at::Tensor> mixed(static_cast<std::size_t>(group.world_size()), integers);
  mixed.back() = sparse;
  expect_error([&] { (void)group.all_to_all(mixed); }, "sparse");
  expect_error([&] { group.broadcast(integers, group.world_size()); },
               "root is rank " + std::to_string(group.world_size()));
  expect_error([&] { group.broadcast(integers, -1); }, "root is rank -1");
  group.barrier();
  group.all_reduce(integers, Reduction::Sum);
  EXPECT_EQ(integers[0].item<std::int64_t>(), group.world_size());
}

void tells_all_ranks_when_they_disagree(Collective& group) {
  if (group.world_size() == 1) {
    return;  // There is nobody to disagree with.
  }
  at::Tensor tensor = at::ones({group.rank() == 0 ? 4 : 5}, at::kFloat);
  const auto disagree = [&] { group.all_reduce(tensor, Reduction::Mean); };
  expect_error(disagree, "all_reduce (mean) of Float [4]");
  expect_error(disagree, "all_reduce (mean) of Float [5]");
  // The group is over: the first error comes again, whatever is called.
  expect_error([&] { group.barrier(); }, "differs between ranks");
}

}  // namespace

const std::vector<Claim>& conformance_suite() {
  static const std::vector<Claim> suite{
      {"AddsInRankOrder", adds_in_rank_order},
      {"TakesTheMean", takes_the_mean},
      {"RoundsSixteenBitSumsOnce", rounds_16_bit_sums_once},
      {"KeepsStridesAndMemory", keeps_strides_and_memory},
      {"ChangesLeavesThatRequireGradients", changes_leaves_that_require_gradients},
      {"GathersInRankOrder", gathers_in_rank_order},
      {"GathersPiecesOfDifferentSizes", gathers_pieces_of_different_sizes},
      {"GivesGatheredTensorsMemoryOfTheirOwn", gives_gathered_tensors_memory_of_their_own},
      {"ExchangesPiecesOfAnySizeBetweenAllPairs", exchanges_pieces_of_any_size_between_all_pairs},
      {"GivesExchangedTensorsMemoryOfTheirOwn", gives_exchanged_tensors_memory_of_their_own},
      {"BroadcastsFromEveryRoot", broadcasts_from_every_root},
      {"MovesEmptyTensors", moves_empty_tensors},
      {"RefusesWrongArgumentsAndLivesOn", refuses_wrong_arguments_and_lives_on},
      {"TellsAllRanksWhenTheyDisagree", tells_all_ranks_when_they_disagree},
  };
  return suite;
}

}  // namespace spillway::test
