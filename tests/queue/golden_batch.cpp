#include <queue/golden_batch.hpp>

#include <cmath>
#include <functional>
#include <string>

#include <ATen/TensorOperators.h>
#include <ATen/ops/full.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros_like.h>
#include <gtest/gtest.h>

#include <queue/bank_fixture.hpp>
#include <queue/numerics.hpp>
#include <spillway/distributed/gradient_mean.hpp>
#include <spillway/queue/contrastive_loss.hpp>
#include <spillway/queue/gather_rows.hpp>
#include <spillway/queue/streaming_loss.hpp>
#include <support/golden_torch.hpp>

namespace spillway::test {

namespace {

using distributed::Collective;
using distributed::Reduction;
using queue::ContrastiveResult;

constexpr double kTolerance = 1e-12;

/// This rank's part of the batch, encoded.
struct Part {
  Part(const GoldenFile& file, Collective& ranks, const std::vector<std::int64_t>& sizes)
      : size(sizes[static_cast<std::size_t>(ranks.rank())]),
        weight(tensor(file, "W").requires_grad_()),
        log_scale(at::full({}, -std::log(0.07), at::kDouble).requires_grad_()) {
    for (int rank = 0; rank < ranks.rank(); ++rank) first += sizes[static_cast<std::size_t>(rank)];
    h0 = rows(file, "x0").matmul(weight.t());
    h1 = rows(file, "x1").matmul(weight.t());
    h0.retain_grad();
    h1.retain_grad();
  }

  /// This rank's rows of a tensor that has one for each sample.
  [[nodiscard]] at::Tensor rows(const GoldenFile& file, const std::string& name) const {
    return tensor(file, name).narrow(0, first, size);
  }

  std::int64_t first = 0;
  std::int64_t size;
  at::Tensor weight, log_scale, h0, h1;
};

/// What is detached gets no gradient, which is as good as zeros.
at::Tensor gradient_of(const at::Tensor& tensor) {
  return tensor.grad().defined() ? tensor.grad() : at::zeros_like(tensor);
}

using Loss = std::function<ContrastiveResult(const Part& part)>;

double mean_over_ranks(const at::Tensor& value, Collective& ranks) {
  at::Tensor mean = value.detach().clone();
  ranks.all_reduce(mean, Reduction::Mean);
  return mean.item<double>();
}

/// The loss, and the gradients of the encoder (mean over the ranks) and of what it encoded.
void expect_loss_and_gradients(const GoldenFile& file, const std::string& name, const Loss& loss, Collective& ranks,
                               const std::vector<std::int64_t>& sizes) {
  SCOPED_TRACE(name);
  const Part part(file, ranks, sizes);
  const at::Tensor got = loss(part).loss;
  EXPECT_NEAR(mean_over_ranks(got, ranks), scalar(file, name + ".loss"), kTolerance);
  got.backward();
  if (name != "clip") {
    EXPECT_LE(max_error(gradient_of(part.h0) / ranks.world_size(), part.rows(file, name + ".d_h0")), kTolerance);
    EXPECT_LE(max_error(gradient_of(part.h1) / ranks.world_size(), part.rows(file, name + ".d_h1")), kTolerance);
  }
  distributed::average_gradients(std::vector{part.weight, part.log_scale}, ranks);
  EXPECT_LE(max_error(part.weight.grad(), tensor(file, name + ".d_W")), kTolerance);
  if (name == "clip") {
    EXPECT_LE(max_error(part.log_scale.grad(), tensor(file, "clip.d_log_scale")), kTolerance);
  }
  for (const std::string wrong :
       {"WRONG_mean_of_rank_means_d_W", "WRONG_local_negatives_d_W", "WRONG_gather_without_grad_d_W"}) {
    if (name == "ntxent" || (name == "moco" && wrong == "WRONG_mean_of_rank_means_d_W")) {
      EXPECT_GT(relative_error(part.weight.grad(), tensor(file, name + "." + wrong)), 1e-3) << wrong;
    }
  }
}

/// What the anchors of one rank alone send to everyone: only that rank's loss counts.
void expect_contributions(const GoldenFile& file, const std::string& name, const Loss& loss, Collective& ranks,
                          const std::vector<std::int64_t>& sizes) {
  for (int source = 0; source < ranks.world_size(); ++source) {
    SCOPED_TRACE(name + " from rank " + std::to_string(source));
    const Part part(file, ranks, sizes);
    const at::Tensor got = loss(part).loss / ranks.world_size();
    if (ranks.rank() == source) {
      EXPECT_NEAR(got.item<double>(), tensor(file, name + ".rank_loss_part")[source].item<double>(), kTolerance);
    }
    (got * (ranks.rank() == source ? 1 : 0)).backward();
    const auto wanted = [&](const char* view) {
      return tensor(file, name + ".rank_" + view + "_contrib")[source].narrow(0, part.first, part.size);
    };
    EXPECT_LE(max_error(gradient_of(part.h0), wanted("d_h0")), kTolerance);
    EXPECT_LE(max_error(gradient_of(part.h1), wanted("d_h1")), kTolerance);
  }
}

/// The control: the usual mistakes do give the wrong answers of the file.
void expect_mistakes_to_show(const GoldenFile& file, double temperature, Collective& ranks,
                             const std::vector<std::int64_t>& sizes) {
  const Part part(file, ranks, sizes);
  const auto z0 = normalised(part.h0);
  const auto z1 = normalised(part.h1);
  EXPECT_NEAR(mean_over_ranks(queue::nt_xent(z0, z1, temperature, &ranks).rows.mean(), ranks),
              scalar(file, "ntxent.WRONG_mean_of_rank_means_loss"), kTolerance);
  EXPECT_NEAR(mean_over_ranks(queue::nt_xent(z0, z1, temperature).loss, ranks),
              scalar(file, "ntxent.WRONG_local_negatives_loss"), kTolerance);
}

}  // namespace

void expect_answers_of_one_process(Collective& ranks, const std::vector<std::int64_t>& sizes) {
  const GoldenFile file = GoldenFile::open("12_dist_uneven_3_5");
  const double temperature = scalar(file, "T");
  const TestTiers tiers(Storage::kMemory);
  queue::NegativeBank bank(tiers.get(), bank_options({11, 8, at::kDouble, 4}, Storage::kMemory));
  bank.enqueue(tensor(file, "bank"));

  const std::vector<std::pair<std::string, Loss>> losses{
      {"ntxent",
       [&](const Part& part) { return queue::nt_xent(normalised(part.h0), normalised(part.h1), temperature, &ranks); }},
      {"supcon",
       [&](const Part& part) {
         return queue::sup_con(at::stack({normalised(part.h0), normalised(part.h1)}, 1), part.rows(file, "labels"),
                               temperature, {.base_temperature = temperature, .ranks = &ranks});
       }},
      {"moco",
       [&](const Part& part) {
         const auto result = queue::info_nce(normalised(part.h0), normalised(part.h1).detach(), bank, temperature);
         return ContrastiveResult{result.loss * queue::rank_share(part.size, ranks), result.rows};
       }},
      {"clip",
       [&](const Part& part) {
         return queue::clip_loss(normalised(part.h0), normalised(part.h1), part.log_scale, {.ranks = &ranks});
       }},
  };
  const bool as_in_the_file = sizes == std::vector<std::int64_t>{3, 5};
  for (const auto& [name, loss] : losses) {
    expect_loss_and_gradients(file, name, loss, ranks, sizes);
    if (as_in_the_file && name != "clip") expect_contributions(file, name, loss, ranks, sizes);
  }
  if (as_in_the_file) expect_mistakes_to_show(file, temperature, ranks, sizes);
}

}  // namespace spillway::test
