#include <spillway/distributed/gradient_mean.hpp>

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <spillway/distributed/process_group.hpp>
#include <spillway/distributed/thread_collective.hpp>
#include <spillway/offload/error.hpp>

#include "distributed/ranks.hpp"

namespace spillway::distributed::gradient_mean_test {
namespace {

using test::on_rank_threads;
using ::testing::HasSubstr;

std::vector<std::unique_ptr<Collective>> group_of(int world_size) {
  return make_thread_group(world_size, std::chrono::seconds(30));
}

/// The gradient that rank `rank` finds for a parameter of these sizes.
at::Tensor gradient_of(int rank, at::IntArrayRef sizes, at::ScalarType dtype = at::kFloat) {
  auto generator = at::detail::createCPUGenerator(static_cast<std::uint64_t>(7 + rank));
  return at::randn(sizes, generator, at::TensorOptions(at::kFloat)).to(dtype);
}

at::Tensor parameter(at::IntArrayRef sizes, at::ScalarType dtype = at::kFloat) { return at::ones(sizes, dtype); }

TEST(AverageGradients, EqualsAccumulationInRankOrderBitForBit) {
  for (const int world_size : {2, 3, 4}) {
    on_rank_threads(group_of(world_size), [&](Collective& group) {
      const std::vector<at::Tensor> parameters{parameter({33, 7}), parameter({1}), parameter({129})};
      for (const at::Tensor& each : parameters) {
        each.mutable_grad() = gradient_of(group.rank(), each.sizes());
      }

      average_gradients(parameters, group);

      for (const at::Tensor& each : parameters) {
        at::Tensor accumulated = gradient_of(0, each.sizes());
        for (int rank = 1; rank < world_size; ++rank) {
          accumulated.add_(gradient_of(rank, each.sizes()));
        }
        EXPECT_TRUE(at::equal(each.grad(), accumulated.div_(world_size))) << world_size << " ranks";
      }
    });
  }
}

TEST(AverageGradients, ChangesNothingInAWorldOfOne) {
  const auto alone = connect(RankEnvironment{});
  const at::Tensor weights = parameter({8});
  weights.mutable_grad() = gradient_of(0, {8});
  average_gradients(std::vector{weights}, *alone);
  EXPECT_TRUE(at::equal(weights.grad(), gradient_of(0, {8})));
}

TEST(AverageGradients, CountsAMissingGradientAsZero) {
  on_rank_threads(group_of(2), [](Collective& group) {
    const at::Tensor only_on_rank_1 = parameter({5});
    if (group.rank() == 1) {
      only_on_rank_1.mutable_grad() = gradient_of(1, {5});
    }
    average_gradients(std::vector{only_on_rank_1}, group);
    ASSERT_TRUE(only_on_rank_1.grad().defined());
    EXPECT_TRUE(at::equal(only_on_rank_1.grad(), gradient_of(1, {5}) / 2));
  });
}

TEST(AverageGradients, LeavesAGradientUndefinedThatNoRankHas) {
  on_rank_threads(group_of(2), [](Collective& group) {
    const std::vector<at::Tensor> parameters{parameter({2}), parameter({3}), parameter({4})};
    parameters[0].mutable_grad() = gradient_of(group.rank(), {2});
    parameters[2].mutable_grad() = gradient_of(group.rank(), {4});
    average_gradients(parameters, group);
    EXPECT_FALSE(parameters[1].grad().defined());
    EXPECT_TRUE(at::equal(parameters[2].grad(), (gradient_of(0, {4}) + gradient_of(1, {4})) / 2));
  });
}

TEST(AverageGradients, ChangesGradientsInPlaceAndKeepsTheirStrides) {
  on_rank_threads(group_of(2), [](Collective& group) {
    const at::Tensor weight = parameter({4, 3, 2, 2}).contiguous(at::MemoryFormat::ChannelsLast);
    weight.mutable_grad() = gradient_of(group.rank(), {4, 3, 2, 2}).contiguous(at::MemoryFormat::ChannelsLast);
    const at::Tensor before = weight.grad();
    average_gradients(std::vector{weight}, group);
    EXPECT_TRUE(weight.grad().is_same(before));
    EXPECT_TRUE(weight.grad().is_contiguous(at::MemoryFormat::ChannelsLast));
    EXPECT_TRUE(at::equal(weight.grad(), (gradient_of(0, {4, 3, 2, 2}) + gradient_of(1, {4, 3, 2, 2})) / 2));
  });
}

TEST(AverageGradients, GivesANewGradientTheStridesOfItsParameter) {
  on_rank_threads(group_of(2), [](Collective& group) {
    const at::Tensor weight = parameter({4, 3, 2, 2}).contiguous(at::MemoryFormat::ChannelsLast).requires_grad_();
    if (group.rank() == 0) {
      weight.mutable_grad() = gradient_of(0, {4, 3, 2, 2});
    }
    average_gradients(std::vector{weight}, group);
    EXPECT_EQ(weight.grad().is_contiguous(at::MemoryFormat::ChannelsLast), group.rank() == 1);
    EXPECT_FALSE(weight.grad().requires_grad());
  });
}

TEST(AverageGradients, SendsEachDtypeInBucketsOfItsOwn) {
  on_rank_threads(group_of(2), [](Collective& group) {
    const std::vector<at::Tensor> parameters{parameter({9}), parameter({5}, at::kBFloat16), parameter({3}, at::kDouble),
                                             parameter({7}, at::kBFloat16)};
    for (const at::Tensor& each : parameters) {
      each.mutable_grad() = gradient_of(group.rank(), each.sizes(), each.scalar_type());
    }
    average_gradients(parameters, group);
    for (const at::Tensor& each : parameters) {
      const auto dtype = each.scalar_type();
      const auto wide = dtype == at::kBFloat16 ? at::kFloat : dtype;
      const at::Tensor sum =
          gradient_of(0, each.sizes(), dtype).to(wide) + gradient_of(1, each.sizes(), dtype).to(wide);
      EXPECT_EQ(each.grad().scalar_type(), dtype);
      EXPECT_TRUE(at::equal(each.grad(), (sum / 2).to(dtype))) << dtype;
    }
  });
}

TEST(AverageGradients, CutsLongListsIntoSeveralBuckets) {
  constexpr std::int64_t kNumel = 5 << 20;  // 20 MiB each, so that no two fit in a bucket of 32 MiB.
  on_rank_threads(group_of(2), [](Collective& group) {
    const std::vector<at::Tensor> parameters{parameter({kNumel}), parameter({kNumel}), parameter({3})};
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      parameters[i].mutable_grad() =
          at::full(parameters[i].sizes(), static_cast<double>(i + 1) * (group.rank() == 0 ? 1.0 : 3.0), at::kFloat);
    }
    average_gradients(parameters, group);
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      const auto& gradient = parameters[i].grad();
      EXPECT_TRUE(at::equal(gradient, at::full(gradient.sizes(), static_cast<double>(i + 1) * 2.0, at::kFloat))) << i;
    }
  });
}

TEST(AverageGradients, NamesTheParameterThatItCantAverage) {
  const auto alone = connect(RankEnvironment{});
  const auto expect_error = [&](const std::vector<at::Tensor>& parameters, const std::string& text) {
    try {
      average_gradients(parameters, *alone);
      ADD_FAILURE() << "no error";
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), HasSubstr(text));
    }
  };
  const at::Tensor embedding = parameter({4, 2});
  embedding.mutable_grad() = at::ones({4, 2}).to_sparse();
  expect_error({parameter({1}), embedding}, "gradient of parameter 1 is sparse");
}

TEST(AverageGradients, ToldOfOtherParametersOnAnotherRankSaysSo) {
  on_rank_threads(group_of(2), [](Collective& group) {
    std::vector<at::Tensor> parameters{parameter({3})};
    if (group.rank() == 1) {
      parameters.push_back(parameter({3}));
    }
    try {
      average_gradients(parameters, group);
      ADD_FAILURE() << "no error";
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), HasSubstr("differs between ranks"));
    }
  });
}

}  // namespace
}  // namespace spillway::distributed::gradient_mean_test
