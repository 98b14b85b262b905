#include <cmath>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/batch_norm.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/dropout.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/tanh.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <distributed/ranks.hpp>
#include <queue/bank_fixture.hpp>
#include <queue/numerics.hpp>
#include <spillway/distributed/gradient_mean.hpp>
#include <spillway/distributed/thread_collective.hpp>
#include <spillway/offload/error.hpp>
#include <spillway/queue/cached_accumulation.hpp>
#include <spillway/queue/contrastive_loss.hpp>
#include <spillway/queue/cosine_loss.hpp>
#include <spillway/queue/streaming_loss.hpp>
#include <support/golden_torch.hpp>

namespace spillway::queue::cached_accumulation_test {
namespace {

using test::GoldenFile;
using test::max_error;
using test::normalised;
using test::random_rows;
using test::relative_error;
using test::scalar;
using test::tensor;
using testing::HasSubstr;
using testing::ThrowsMessage;
using Views = std::vector<at::Tensor>;

// Row 15 of the list of others' bugs: the gradient of a learnable scale times the number of chunks.
TEST(CachedAccumulation, GivesTheGoldenGradientOfTheWholeBatch) {
  const GoldenFile file = GoldenFile::open("13_gradcache");
  const auto parameter = [&](const char* name) { return tensor(file, name).requires_grad_(); };
  const at::Tensor w1 = parameter("W1");
  const at::Tensor b1 = parameter("b1");
  const at::Tensor w2 = parameter("W2");
  const at::Tensor log_scale = parameter("log_scale");
  const at::Tensor chunks = tensor(file, "chunks");
  const auto encode_all = [&](const at::Tensor& x) { return at::tanh(x.matmul(w1.t()) + b1).matmul(w2.t()); };
  Views joined;
  CachedAccumulation step;
  step.micro_batches = chunks.size(0);
  step.encode = [&](std::int64_t chunk) {
    const std::int64_t first = chunks.narrow(0, 0, chunk).sum().item<std::int64_t>();
    const std::int64_t rows = chunks[chunk].item<std::int64_t>();
    return Views{encode_all(tensor(file, "x0").narrow(0, first, rows)),
                 encode_all(tensor(file, "x1").narrow(0, first, rows))};
  };
  step.loss = [&](const Views& views) {
    joined = views;
    return nt_xent(normalised(views[0]), normalised(views[1]), log_scale.neg().exp()).loss;
  };
  const at::Tensor loss = step.run();
  EXPECT_FALSE(loss.requires_grad());
  EXPECT_LE(max_error(loss, tensor(file, "loss")), 1e-12);
  EXPECT_LE(max_error(w1.grad(), tensor(file, "d_W1")), 1e-12);
  EXPECT_LE(max_error(b1.grad(), tensor(file, "d_b1")), 1e-12);
  EXPECT_LE(max_error(w2.grad(), tensor(file, "d_W2")), 1e-12);
  EXPECT_LE(max_error(log_scale.grad(), tensor(file, "d_log_scale")), 1e-12);
  EXPECT_LE(max_error(joined[0], tensor(file, "reps0")), 1e-12);
  EXPECT_LE(max_error(joined[1], tensor(file, "reps1")), 1e-12);
  EXPECT_LE(max_error(joined[0].grad(), tensor(file, "d_reps0")), 1e-12);
  EXPECT_LE(max_error(joined[1].grad(), tensor(file, "d_reps1")), 1e-12);
  EXPECT_GT(relative_error(w1.grad(), tensor(file, "WRONG_naive_d_W1")), 0.5 * scalar(file, "WRONG_naive_rel_err"));
  EXPECT_GT(max_error(log_scale.grad(), tensor(file, "WRONG_openclip_style_d_log_scale")), 1e-3);
}

/// An encoder with batch-norm and dropout.
struct Network {
  explicit Network(at::ScalarType dtype)
      : w1(random_rows(16, 10, 1, dtype).requires_grad_()),
        w2(random_rows(8, 16, 2, dtype).requires_grad_()),
        log_scale(at::full({}, 1.5, dtype).requires_grad_()),
        running_mean(at::zeros({16}, dtype)),
        running_var(at::ones({16}, dtype)) {}

  at::Tensor operator()(const at::Tensor& x) const {
    const at::Tensor hidden = at::batch_norm(x.matmul(w1.t()), {}, {}, running_mean, running_var, /*training=*/true,
                                             /*momentum=*/0.1, /*eps=*/1e-5, /*cudnn_enabled=*/false);
    return normalised(at::dropout(at::tanh(hidden), 0.25, /*train=*/true).matmul(w2.t()));
  }

  at::Tensor w1, w2, log_scale, running_mean, running_var;
};

using BatchLoss = std::function<at::Tensor(const Views& views, const Network& network)>;

std::vector<std::pair<std::string, BatchLoss>> all_losses(NegativeBank& bank) {
  const auto temperature = [](const Network& network) { return network.log_scale.neg().exp(); };
  return {
      {"nt_xent", [=](const Views& v, const Network& n) { return nt_xent(v[0], v[1], temperature(n)).loss; }},
      {"decoupled_contrastive",
       [=](const Views& v, const Network& n) { return decoupled_contrastive(v[0], v[1], temperature(n)).loss; }},
      {"sup_con",
       [=](const Views& v, const Network& n) {
         return sup_con(at::stack(v, 1), at::arange(v[0].size(0)).remainder(5), temperature(n)).loss;
       }},
      {"clip_loss", [](const Views& v, const Network& n) { return clip_loss(v[0], v[1], n.log_scale).loss; }},
      {"info_nce", [=, &bank](const Views& v,
                              const Network& n) { return info_nce(v[0], v[1].detach(), bank, temperature(n)).loss; }},
      {"byol_loss", [](const Views& v,
                       const Network& n) { return byol_loss(v[0], v[1], v[0].detach(), v[1].detach()) * n.log_scale; }},
  };
}

constexpr std::int64_t kMicroBatches = 8;
constexpr std::int64_t kRows = 6;

/// Two views of 48 samples, and what a step over them leaves.
struct Step {
  Step(at::ScalarType dtype, const BatchLoss& batch_loss, bool cached) : network(dtype) {
    at::Generator generator = at::detail::getDefaultCPUGenerator();
    generator.set_current_seed(11);
    const at::Tensor x0 = random_rows(kMicroBatches * kRows, 10, 3, dtype);
    const at::Tensor x1 = random_rows(kMicroBatches * kRows, 10, 4, dtype);
    const auto encode = [&](std::int64_t micro_batch) {
      return Views{network(x0.narrow(0, micro_batch * kRows, kRows)),
                   network(x1.narrow(0, micro_batch * kRows, kRows))};
    };
    if (cached) {
      CachedAccumulation step;
      step.micro_batches = kMicroBatches;
      step.encode = encode;
      step.loss = [&](const Views& views) { return batch_loss(views, network); };
      step.buffers = {network.running_mean, network.running_var};
      loss = step.run();
    } else {
      std::vector<at::Tensor> views[2];
      for (std::int64_t micro_batch = 0; micro_batch < kMicroBatches; ++micro_batch) {
        const Views encoded = encode(micro_batch);
        for (const std::size_t view : {0, 1}) views[view].push_back(encoded[view]);
      }
      loss = batch_loss({at::cat(views[0]), at::cat(views[1])}, network);
      loss.backward();
    }
    next_random = at::rand({1});
  }

  Network network;
  at::Tensor loss, next_random;
};

// Row 17: dropout drawn anew and running statistics moved twice. The whole batch, with the micro-batches as the groups
// of its batch-norm, in one graph is what it must equal.
TEST(CachedAccumulation, EqualsTheWholeBatchForEveryLossWithBatchNormAndDropout) {
  const test::TestTiers tiers(test::Storage::kMemory);
  NegativeBank bank(tiers.get(), test::bank_options({50, 8, at::kDouble, 20}, test::Storage::kMemory));
  bank.enqueue(normalised(random_rows(50, 8, 5, at::kDouble)));
  for (const auto& [name, loss] : all_losses(bank)) {
    for (const auto& [dtype, tolerance] : {std::pair{at::kDouble, 1e-12}, {at::kFloat, 1e-5}}) {
      SCOPED_TRACE(name + " in " + c10::toString(dtype));
      const Step got(dtype, loss, /*cached=*/true);
      const Step wanted(dtype, loss, /*cached=*/false);
      EXPECT_LE(relative_error(got.loss, wanted.loss.detach()), tolerance);
      EXPECT_LE(relative_error(got.network.w1.grad(), wanted.network.w1.grad()), tolerance);
      EXPECT_LE(relative_error(got.network.w2.grad(), wanted.network.w2.grad()), tolerance);
      EXPECT_LE(relative_error(got.network.log_scale.grad(), wanted.network.log_scale.grad()), tolerance);
      EXPECT_TRUE(got.network.running_mean.equal(wanted.network.running_mean));
      EXPECT_TRUE(got.network.running_var.equal(wanted.network.running_var));
      EXPECT_TRUE(got.next_random.equal(wanted.next_random));
    }
  }
}

TEST(CachedAccumulation, AddsToGradientsThatAreThereAsBackwardDoes) {
  const at::Tensor weight = random_rows(3, 4, 1, at::kDouble).requires_grad_();
  CachedAccumulation step;
  step.micro_batches = 2;
  step.encode = [&](std::int64_t chunk) {
    return Views{random_rows(3, 4, static_cast<std::uint64_t>(chunk), at::kDouble).matmul(weight.t()),
                 at::ones({3, 3})};
  };
  step.loss = [](const Views& views) { return views[0].pow(2).mean(); };  // Takes no notice of the second view.
  (void)step.run();
  const at::Tensor once = weight.grad().clone();
  (void)step.run();
  EXPECT_LE(relative_error(weight.grad(), once * 2), 1e-15);  // Four terms, added in another order.
}

TEST(CachedAccumulation, SharesABatchAmongRanksWithOtherNumbersOfMicroBatches) {
  const at::Tensor x = random_rows(12, 10, 3, at::kDouble);
  const at::Tensor y = random_rows(12, 10, 4, at::kDouble);
  const at::Tensor whole = random_rows(8, 10, 1, at::kDouble).requires_grad_();
  nt_xent(normalised(x.matmul(whole.t())), normalised(y.matmul(whole.t())), 0.2).loss.backward();
  test::on_rank_threads(distributed::make_thread_group(2, std::chrono::seconds(30)),
                        [&](distributed::Collective& ranks) {
                          const at::Tensor weight = random_rows(8, 10, 1, at::kDouble).requires_grad_();
                          const std::int64_t offset = ranks.rank() == 0 ? 0 : 4;
                          CachedAccumulation step;
                          step.micro_batches = ranks.rank() == 0 ? 1 : 2;  // Of four samples each.
                          step.encode = [&](std::int64_t chunk) {
                            const auto part = [&](const at::Tensor& all) {
                              return all.narrow(0, offset + 4 * chunk, 4).matmul(weight.t());
                            };
                            return Views{part(x), part(y)};
                          };
                          step.loss = [&](const Views& views) {
                            return nt_xent(normalised(views[0]), normalised(views[1]), 0.2, &ranks).loss;
                          };
                          (void)step.run();
                          distributed::average_gradients(std::vector{weight}, ranks);
                          EXPECT_LE(max_error(weight.grad(), whole.grad()), 1e-12);
                        });
}

TEST(CachedAccumulation, FindsAnEncoderThatIsNotTheSameTwice) {
  const at::Tensor weight = random_rows(3, 4, 1).requires_grad_();
  at::Generator generator = at::detail::createCPUGenerator(7);
  CachedAccumulation step;
  step.micro_batches = 2;
  step.encode = [&](std::int64_t) { return Views{at::rand({5, 4}, generator).matmul(weight.t())}; };
  step.loss = [](const Views& views) { return views[0].pow(2).mean(); };
  EXPECT_THAT([&] { (void)step.run(); }, ThrowsMessage<Error>(HasSubstr("micro-batch 0 has other embeddings")));
  step.generators = {generator};
  const at::Tensor before = generator.get_state();
  EXPECT_NO_THROW((void)step.run());
  // It goes on as after one pass.
  const at::Tensor next = at::rand({5, 4}, generator);
  generator.set_state(before);
  (void)at::rand({5, 4}, generator);
  (void)at::rand({5, 4}, generator);
  EXPECT_TRUE(at::rand({5, 4}, generator).equal(next));
}

TEST(CachedAccumulation, RefusesWhatDoesNotFitTogether) {
  CachedAccumulation step;
  step.loss = [](const Views& views) { return views[0].sum(); };
  const auto refused = [&](const CachedAccumulation::Encode& encode, const char* text) {
    step.encode = encode;
    EXPECT_THAT([&] { (void)step.run(); }, ThrowsMessage<ConfigError>(HasSubstr(text)));
  };
  step.micro_batches = 0;
  refused([](std::int64_t) { return Views{}; }, "0 micro-batches");
  step.micro_batches = 2;
  refused([](std::int64_t) { return Views{}; }, "micro-batch 0 has no embeddings");
  refused(
      [](std::int64_t chunk) {
        return Views(static_cast<std::size_t>(chunk + 1), at::ones({2, 3}));
      },
      "micro-batch 1 has 2 views, micro-batch 0 has 1");
  refused([](std::int64_t chunk) { return Views{at::ones({2, 3 + chunk})}; }, "[2, 4] float on cpu as view 0");
}

}  // namespace
}  // namespace spillway::queue::cached_accumulation_test
