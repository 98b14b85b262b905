// What a sharded optimizer refuses, and how a rank that fails ends the others: with its name, and soon.
#include <atomic>
#include <thread>

#include <ATen/TensorOperators.h>
#include <ATen/ops/full.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/sum.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

#include <spillway/offload/error.hpp>

#include "optimizer/sharded_fixture.hpp"
#include "support/memory_engine.hpp"

namespace spillway::test::sharded_refusals_test {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::HasSubstr;

at::Tensor leaf(at::IntArrayRef sizes) { return at::ones(sizes).requires_grad_(); }
void backward(const at::Tensor& parameter) { parameter.sum().backward(); }

TEST(ShardedRefusals, NameTheFirstParameterThatDiffersBetweenRanks) {
  struct Case {
    std::function<Tensors(int rank)> make;
    std::vector<const char*> text;
  };
  const std::vector<Case> cases{
      {[](int rank) {
         return Tensors{leaf({3}), leaf({4, rank == 1 ? 6 : 5}), leaf({1})};
       },
       {"parameter 1 of group 0, Float [4, 5]", "parameter 1 of group 0, Float [4, 6]"}},
      {[](int rank) {
         return rank == 1 ? Tensors{leaf({3}), leaf({2})} : Tensors{leaf({3})};
       },
       {"rank 0 has no more", "parameter 1 of group 0, Float [2]"}},
      {[](int rank) { return Tensors{rank == 1 ? leaf({3}).detach().to(at::kDouble).requires_grad_() : leaf({3})}; },
       {"Float [3]", "Double [3]"}},
      {[](int rank) {
         return Tensors{leaf({3}), at::ones({2}).requires_grad_(rank == 0)};
       },
       {"Float [2], frozen"}}};
  for (const Case& each : cases) {
    with_ranks(2, [&](Rank& rank) {
      const std::string message =
          message_of<ConfigError>([&] { (void)rank.sgd(each.make(rank.number), 1.0, rank.config()); });
      for (const char* text : each.text) {
        EXPECT_THAT(message, HasSubstr(text));
      }
    });
  }
}

TEST(ShardedRefusals, TellAllRanksWhatOneOfThemCantHave) {
  with_ranks(2, [](Rank& rank) {
    OptimizerConfig config = rank.config();
    config.shard_weights = {0.0, rank.number == 1 ? 0.0 : 1.0};
    const std::string message = message_of([&] { (void)rank.sgd({leaf({3})}, 1.0, config); });
    EXPECT_THAT(message, HasSubstr("sum to 0"));
    EXPECT_EQ(message.find("rank 1 failed in wrap()") != std::string::npos, rank.number == 0);
  });
  with_ranks(2, [](Rank& rank) {
    OptimizerConfig config = rank.config();
    config.shard_weights = {1.0};
    EXPECT_THAT(message_of<ConfigError>([&] { (void)rank.sgd({leaf({3})}, 1.0, config); }), HasSubstr("for 2 ranks"));
  });
  with_ranks(2, [](Rank& rank) {
    OptimizerConfig config = rank.config();
    config.shard_weights = {1.0, rank.number + 1.0};
    EXPECT_THAT(message_of<ConfigError>([&] { (void)rank.sgd({leaf({3})}, 1.0, config); }), HasSubstr("shard weights"));
  });
  with_ranks(2, [](Rank& rank) {
    OptimizerConfig config = rank.config();
    config.tiers_options.host_bytes = rank.number == 1 ? 4096 : 1U << 20;
    EXPECT_THAT(message_of([&] { (void)rank.adamw({leaf({3000}), leaf({3000})}, config); }), HasSubstr("budget"));
  });
}

TEST(ShardedRefusals, GroupsGoWithGradientsThatAreTaken) {
  with_ranks(2, [](Rank& rank) {
    EXPECT_THAT(
        message_of<ConfigError>([&] { (void)rank.sgd({leaf({3})}, 1.0, rank.config(GradientDevice::kInPlace)); }),
        HasSubstr("average_gradients"));
    OptimizerConfig config = rank.config();
    config.agreement_group = config.gradient_group;
    EXPECT_THAT(message_of<ConfigError>([&] { (void)rank.sgd({leaf({3})}, 1.0, config); }), HasSubstr("two groups"));
    config.agreement_group = nullptr;
    EXPECT_THAT(message_of<ConfigError>([&] { (void)rank.sgd({leaf({3})}, 1.0, config); }), HasSubstr("two groups"));
  });
}

TEST(ShardedRefusals, AParameterBelongsToOneWrapper) {
  with_ranks(1, [](Rank& rank) {
    const Tensors weights{leaf({3}), leaf({4})};
    auto first = rank.sgd({weights[1]}, 1.0, rank.config());
    EXPECT_THAT(message_of<ConfigError>([&] { (void)rank.sgd(weights, 1.0, rank.config()); }),
                AllOf(HasSubstr("parameter 1 of group 0"), HasSubstr("another wrapped optimizer")));
    first.reset();
    const auto second = rank.sgd(weights, 1.0, rank.config());  // And the refusal has left no hook behind.
    backward(weights[0]);
    EXPECT_FALSE(weights[0].grad().defined());
  });
}

TEST(ShardedRefusals, AParameterThatWasResizedOrConvertedOnOneRankStopsTheStepOnAll) {
  using Change = std::function<void(at::Tensor&)>;
  const std::vector<std::pair<Change, const char*>> changes{
      {[](at::Tensor& weight) { weight.set_data(at::ones({5})); }, "was resized"},
      {[](at::Tensor& weight) { weight.set_data(at::ones({3}, at::kDouble)); }, "moved or converted"}};
  for (const auto& [change, text] : changes) {
    with_ranks(2, [&change = change, text = text](Rank& rank) {
      Tensors weights{leaf({4}), leaf({3})};
      const auto optimizer = rank.sgd(weights, 1.0, rank.config());
      backward(weights[0]);
      const at::Tensor original = weights[1].detach();
      if (rank.number == 1) {
        change(weights[1]);
      }
      EXPECT_THAT(message_of([&] { optimizer->step(); }), AllOf(HasSubstr("parameter 1 of group 0"), HasSubstr(text)));
      EXPECT_TRUE(bit_equal(weights[0], at::ones({4})));
      if (rank.number == 1) {
        weights[1].set_data(original);
      }
      optimizer->step();  // Nothing was lost.
      EXPECT_EQ(weights[0][0].item<float>(), 0.0F);
    });
  }
}

TEST(ShardedRefusals, AGradientThatWasNotTakenIsAnError) {
  with_ranks(1, [](Rank& rank) {
    const Tensors weights{leaf({4}), leaf({3})};
    const auto optimizer = rank.sgd(weights, 1.0, rank.config());
    torch::autograd::impl::set_post_acc_grad_hooks(weights[1], nullptr);  // Somebody takes the slot without chaining.
    backward(weights[1]);
    EXPECT_THAT(message_of([&] { optimizer->step(); }),
                AllOf(HasSubstr("parameter 1 of group 0 has a .grad"), HasSubstr("chain hooks")));
  });
}

TEST(ShardedRefusals, GradientsAfterClippingAreAnErrorOnAllRanks) {
  with_ranks(2, [](Rank& rank) {
    const Tensors weights{leaf({4})};
    const auto optimizer = rank.sgd(weights, 1.0, rank.config());
    backward(weights[0]);
    optimizer->clip_grad_norm_(0.5);
    if (rank.number == 0) {
      backward(weights[0]);
    }
    EXPECT_THAT(message_of([&] { optimizer->step(); }), HasSubstr("unscaled or clipped"));
    optimizer->zero_grad();
    backward(weights[0]);
    optimizer->step();
    EXPECT_EQ(weights[0][0].item<float>(), 0.0F);
  });
}

TEST(AFailingRank, InItsClosureIsNamedAndCanTryAgain) {
  with_ranks(3, [](Rank& rank) {
    const Tensors weights{leaf({4})};
    const auto optimizer = rank.sgd(weights, 1.0, rank.config());
    const std::string message = message_of<std::runtime_error>([&] {
      optimizer->step([&]() -> at::Tensor {
        if (rank.number == 1) {
          throw std::runtime_error("no data");
        }
        backward(weights[0]);
        return {};
      });
    });
    EXPECT_EQ(message, rank.number == 1 ? "no data" : "rank 1 failed in step(): no data");
    optimizer->zero_grad();
    backward(weights[0]);
    optimizer->step();
    EXPECT_EQ(weights[0][0].item<float>(), 0.0F);
  });
}

TEST(AFailingRank, ThatMakesAnotherCallIsNamedByAll) {
  with_ranks(2, [](Rank& rank) {
    const Tensors weights{leaf({4})};
    const auto optimizer = rank.sgd(weights, 1.0, rank.config());
    backward(weights[0]);
    const std::string message = message_of([&] {
      if (rank.number == 0) {
        optimizer->clip_grad_norm_(1.0);
      } else {
        optimizer->step();
      }
    });
    EXPECT_THAT(message, AllOf(HasSubstr("clip_grad_norm_()"), HasSubstr("step()"), HasSubstr("the same calls")));
    EXPECT_THAT(message_of([&] { optimizer->step(); }), HasSubstr("unusable"));
  });
}

TEST(AFailingRank, ThatDiesIsMissedAtOnce) {
  with_ranks(3, [](Rank& rank) {
    const Tensors weights{leaf({4}), leaf({5}), leaf({6})};
    auto optimizer = rank.sgd(weights, 1.0, rank.config());
    backward(weights[0]);
    optimizer->step();
    if (rank.number == 2) {
      return;
    }
    backward(weights[1]);
    EXPECT_THAT(message_of([&] { optimizer->step(); }), HasSubstr("rank 2"));
    EXPECT_THAT(message_of([&] { optimizer->step(); }), HasSubstr("unusable"));
  });
}

TEST(AFailingRank, ThatDoesNotComeIsNamedAtTheDeadline) {
  std::atomic<int> done = 0;
  with_ranks(
      2,
      [&](Rank& rank) {
        const Tensors weights{leaf({4})};
        const auto optimizer = rank.sgd(weights, 1.0, rank.config());
        backward(weights[0]);
        if (rank.number == 0) {
          EXPECT_THAT(message_of<TimedOut>([&] { optimizer->step(); }), HasSubstr("rank 1 did not arrive"));
        } else {
          while (done == 0) std::this_thread::yield();
        }
        ++done;
      },
      std::chrono::milliseconds(300));
}

// Whatever transfer of rank 1 fails, all ranks end with an error, and soon; without a fault they have equal weights.
TEST(AFailingRank, WhoseDiskFailsIsNamedWhicheverTransferItIs) {
  std::uint64_t transfers = 1;
  for (std::uint64_t fatal = 0; fatal <= transfers; ++fatal) {
    SCOPED_TRACE("transfer " + std::to_string(fatal));
    std::atomic<int> failed = 0;
    with_ranks(2, [&](Rank& rank) {
      auto owned = std::make_unique<MemoryEngine>(MemoryEngine::Ending::kShuffled);
      MemoryEngine* const engine = owned.get();
      OptimizerConfig config = rank.config(GradientDevice::kNvme, StateDevice::kNvme);
      config.tiers = std::make_shared<offload::Tiers>(config.tiers_options, std::move(owned));
      config.bucket_bytes = 2000;
      Tensors weights;  // More for each rank than it has staging buffers.
      for (const std::int64_t size : {400, 500, 300, 200, 350, 450, 250, 500, 333, 444}) {
        weights.push_back(leaf({size}));
      }
      const auto optimizer = rank.adamw(weights, config);
      if (rank.number == 1 && fatal > 0) {
        engine->set_fate(
            [=](std::uint64_t number, const offload::IoRequest&) {
              return number == fatal ? MemoryEngine::Fate::kFailed : MemoryEngine::Fate::kDone;
            },
            /*for_good=*/true);
      }
      const std::string message = message_of([&] {
        for (int step = 0; step < 2; ++step) {
          for (int micro = 0; micro < 2; ++micro) {
            at::Tensor loss = at::full({}, 0.0);
            for (const at::Tensor& weight : weights) loss = loss + (weight * weight).sum();
            loss.backward();
          }
          optimizer->clip_grad_norm_(1.0);
          optimizer->step();
        }
        optimizer->flush();
      });
      if (rank.number == 1 && fatal == 0) {
        transfers = engine->submitted();
      }
      // The last writes are waited for in flush(), which is each rank's own affair.
      if (rank.number == 0 && !message.empty()) {
        EXPECT_THAT(message, AnyOf(HasSubstr("rank 1 failed in"), HasSubstr("lost rank 1")));
      }
      failed += message.empty() ? 0 : 1;
      EXPECT_TRUE(fatal > 0 || message.empty()) << message;
      EXPECT_TRUE(fatal == 0 || rank.number == 0 || !message.empty());
    });
  }
  EXPECT_GT(transfers, 10U);
}

}  // namespace
}  // namespace spillway::test::sharded_refusals_test
