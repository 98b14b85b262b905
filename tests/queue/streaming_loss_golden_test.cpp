// The streaming loss against the golden files, from banks whose rows lie on every tier. Tolerances are those that the
// golden data was published with: 1e-12 in float64; in float32 2e-5 on rows (more at low temperature) and 1e-4 of the
// largest element on gradients.
#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include <queue/bank_fixture.hpp>
#include <queue/numerics.hpp>
#include <spillway/queue/streaming_loss.hpp>
#include <support/golden_torch.hpp>

namespace spillway::queue::streaming_loss_golden_test {
namespace {

using test::GoldenFile;
using test::max_error;
using test::relative_error;
using test::scalar;
using test::Storage;
using test::tensor;

struct Answer {
  at::Tensor rows, loss, lse, d_q, d_log_scale;
};

/// Loss and query gradient, computed in q's dtype.
Answer answer(const at::Tensor& q, const at::Tensor& k, NegativeBank& bank, double temperature) {
  const at::Tensor leaf = q.clone().requires_grad_();
  const InfoNceResult result = info_nce(leaf, k, bank, temperature);
  result.loss.backward();
  return {result.rows, result.loss.detach(), result.lse, leaf.grad(), result.d_log_scale};
}

/// A number of rows per segment for which `rows` rows leave an open segment and more than two sealed ones.
std::int64_t uneven_segment_rows(std::int64_t rows) {
  std::int64_t segment_rows = std::max<std::int64_t>(2, rows / 6);
  while (rows > 0 && rows % segment_rows == 0) ++segment_rows;
  return segment_rows;
}

/// Enqueues in batches of 1, 2, 3, … rows.
void enqueue_in_pieces(NegativeBank& bank, const at::Tensor& rows) {
  for (std::int64_t first = 0, piece = 1; first < rows.size(0); first += piece, ++piece) {
    bank.enqueue(rows.narrow(0, first, std::min(piece, rows.size(0) - first)));
  }
}

struct Placement {
  Storage storage;
  std::int64_t segment_rows;  // 0: such that there are segments on every tier.
};

std::vector<Placement> every_placement() {
  std::vector<Placement> placements;
  for (const Storage storage : test::kEveryStorage) {
    placements.push_back({storage, 0});
    for (const std::int64_t segment_rows : test::kSegmentRows) placements.push_back({storage, segment_rows});
  }
  return placements;
}

std::string name_of(const testing::TestParamInfo<Placement>& instance) {
  const auto [storage, segment_rows] = instance.param;
  return test::to_string(storage) + (segment_rows == 0 ? "Mixed" : "By" + std::to_string(segment_rows));
}

class GoldenInfoNce : public testing::TestWithParam<Placement> {
 protected:
  GoldenInfoNce() : tiers_(GetParam().storage) {}

  /// A bank that holds exactly `rows` and has wrapped around; where segments are on every tier also one that is
  /// part-filled, which on a disk has an open segment, a sealed one in host memory, and the others on disk.
  template <typename Check>
  void with_banks(const at::Tensor& rows, at::ScalarType dtype, Check check) {
    const std::int64_t n = rows.size(0);
    const std::int64_t dim = rows.size(1);
    const bool mixed = GetParam().segment_rows == 0;
    const Storage storage = GetParam().storage;
    const std::int64_t segment_rows = mixed ? uneven_segment_rows(n) : GetParam().segment_rows;
    const bool on_disk = storage != Storage::kMemory;
    if (mixed || n == 0) {
      SCOPED_TRACE("part-filled bank");
      NegativeBank bank(tiers_.get(), test::bank_options({4 * n + 16, dim, dtype, segment_rows}, storage));
      enqueue_in_pieces(bank, rows);
      ASSERT_EQ(bank.size(), n);
      if (mixed && n >= 5) {
        ASSERT_GE(bank.segments_on(offload::Tier::kHost), 2);
        ASSERT_EQ(bank.segments_on(offload::Tier::kDisk) > 0, on_disk);
      }
      check(bank);
    }
    if (n == 0) return;
    {
      SCOPED_TRACE("bank that wrapped around");
      NegativeBank bank(tiers_.get(), test::bank_options({n, dim, dtype, segment_rows}, storage));
      enqueue_in_pieces(bank, test::random_rows(n + 3, dim, 1, at::kFloat));
      enqueue_in_pieces(bank, rows);
      ASSERT_EQ(bank.size(), n);
      if (mixed && n >= 20) {
        ASSERT_EQ(bank.segments_on(offload::Tier::kDisk) > 0, on_disk);
      }
      check(bank);
    }
  }

  test::TestTiers tiers_;
};

INSTANTIATE_TEST_SUITE_P(Storage, GoldenInfoNce, testing::ValuesIn(every_placement()), name_of);

TEST_P(GoldenInfoNce, GivesTheBasicAnswerInDouble) {
  const GoldenFile file = GoldenFile::open("01_moco_basic");
  with_banks(tensor(file, "bank"), at::kDouble, [&](NegativeBank& bank) {
    const Answer got = answer(tensor(file, "q"), tensor(file, "k"), bank, scalar(file, "T"));
    EXPECT_LE(max_error(got.rows, tensor(file, "loss_rows")), 1e-12);
    EXPECT_LE(max_error(got.lse, tensor(file, "lse")), 1e-12);
    EXPECT_LE(max_error(got.loss, tensor(file, "loss")), 1e-12);
    EXPECT_LE(max_error(got.d_q, tensor(file, "d_q")), 1e-12);
    EXPECT_LE(max_error(got.d_log_scale, tensor(file, "d_log_scale")), 1e-12);
  });
}

TEST_P(GoldenInfoNce, GivesTheBasicAnswerInFloat) {
  const GoldenFile file = GoldenFile::open("01_moco_basic");
  with_banks(tensor(file, "bank"), at::kFloat, [&](NegativeBank& bank) {
    const Answer got =
        answer(tensor(file, "q").to(at::kFloat), tensor(file, "k").to(at::kFloat), bank, scalar(file, "T"));
    EXPECT_EQ(got.rows.scalar_type(), at::kFloat);
    EXPECT_LE(max_error(got.rows, tensor(file, "loss_rows")), 2e-5);
    EXPECT_LE(relative_error(got.d_q, tensor(file, "d_q")), 1e-4);
    EXPECT_LE(relative_error(got.d_log_scale, tensor(file, "d_log_scale")), 1e-4);
  });
}

TEST_P(GoldenInfoNce, GivesGradientsOfRawRowsKeysAndLogScale) {
  const GoldenFile file = GoldenFile::open("01_moco_basic");
  with_banks(tensor(file, "bank"), at::kDouble, [&](NegativeBank& bank) {
    const at::Tensor q_raw = tensor(file, "q_raw").requires_grad_();
    const at::Tensor k_raw = tensor(file, "k_raw").requires_grad_();
    const at::Tensor log_scale = tensor(file, "T").log().neg().requires_grad_();
    const at::Tensor q = test::normalised(q_raw);
    const at::Tensor k = test::normalised(k_raw);
    k.retain_grad();
    EXPECT_LE(max_error(q, tensor(file, "q")), 1e-12);
    EXPECT_LE(max_error(k, tensor(file, "k")), 1e-12);
    const InfoNceResult result = info_nce(q, k, bank, log_scale.neg().exp(), {.rank_positives = true});
    result.loss.backward();
    EXPECT_LE(max_error(q_raw.grad(), tensor(file, "d_q_raw")), 1e-12);
    EXPECT_LE(max_error(k.grad(), tensor(file, "d_k_if_not_detached")), 1e-12);
    EXPECT_LE(max_error(k_raw.grad(), tensor(file, "d_k_raw_if_not_detached")), 1e-12);
    EXPECT_LE(max_error(log_scale.grad(), tensor(file, "d_log_scale")), 1e-12);
    EXPECT_LE(max_error(result.rows.neg().exp(), tensor(file, "p_pos")), 1e-12);
    EXPECT_LE(max_error(result.lse.sub(result.rows), tensor(file, "l_pos")), 1e-12);
    EXPECT_TRUE(result.positive_ranks.equal(tensor(file, "rank_of_pos")));
    EXPECT_EQ(result.positive_ranks.lt(1).sum().item<std::int64_t>(), scalar(file, "top1"));
    EXPECT_EQ(result.positive_ranks.lt(5).sum().item<std::int64_t>(), scalar(file, "top5"));
  });
}

void expect_low_temperature_answers(const GoldenFile& file, NegativeBank& bank) {
  const at::Tensor temperatures = tensor(file, "T");
  for (std::int64_t i = 0; i < temperatures.size(0); ++i) {
    const double temperature = temperatures[i].item<double>();
    SCOPED_TRACE("T = " + std::to_string(temperature));
    const double row_tolerance = temperature < 0.05 ? 2e-4 : 2e-5;
    const at::Tensor wanted = tensor(file, "loss_rows")[i];
    const Answer got = answer(tensor(file, "q").to(at::kFloat), tensor(file, "k"), bank, temperature);
    EXPECT_LE(max_error(got.rows, wanted), row_tolerance);
    EXPECT_LE(max_error(got.lse, tensor(file, "lse")[i]), row_tolerance);
    EXPECT_LE(max_error(got.loss, tensor(file, "loss")[i]), row_tolerance);
    EXPECT_LE(relative_error(got.d_q, tensor(file, "d_q")[i]), 2e-4);
    // The tolerance must tell this from logits or exponentials in half precision.
    EXPECT_GT(tensor(file, "naive_half_logits_worst_row_err")[i].item<double>(), row_tolerance);
    const double naive = tensor(file, "naive_half_exp_loss")[i].item<double>();
    EXPECT_FALSE(std::abs(naive - tensor(file, "loss")[i].item<double>()) <= row_tolerance);
  }
}

TEST_P(GoldenInfoNce, KeepsLogitsOfHalfInputsInFloat) {
  const GoldenFile file = GoldenFile::open("02_moco_lowT_fp16");
  with_banks(tensor(file, "bank"), at::kHalf, [&](NegativeBank& bank) { expect_low_temperature_answers(file, bank); });
}

TEST_P(GoldenInfoNce, KeepsLogitsOfBfloat16InputsInFloat) {
  const GoldenFile file = GoldenFile::open("02_moco_lowT_bf16");
  with_banks(tensor(file, "bank"), at::kBFloat16,
             [&](NegativeBank& bank) { expect_low_temperature_answers(file, bank); });
}

TEST_P(GoldenInfoNce, SurvivesLogitsBeyondTheRangeOfHalf) {
  const GoldenFile file = GoldenFile::open("03_moco_fp16_overflow");
  const double tolerance = 1e-6 * scalar(file, "max_logit");
  with_banks(tensor(file, "bank"), at::kHalf, [&](NegativeBank& bank) {
    const Answer got = answer(tensor(file, "q").to(at::kFloat), tensor(file, "k"), bank, scalar(file, "T"));
    EXPECT_LE(max_error(got.rows, tensor(file, "loss_rows")), tolerance);
    EXPECT_LE(max_error(got.lse, tensor(file, "lse")), tolerance);
    EXPECT_LE(max_error(got.loss, tensor(file, "loss")), tolerance);
    EXPECT_LE(relative_error(got.d_q, tensor(file, "d_q")), 2e-4);
  });
}

// Row 28 of the bugs of others: a loss that is capped where a probability underflows.
TEST_P(GoldenInfoNce, NeitherCapsNorLosesExtremeRows) {
  const GoldenFile file = GoldenFile::open("04_moco_adversarial");
  for (std::int64_t row = 0; row < 4; ++row) {
    SCOPED_TRACE("row " + std::to_string(row));
    const at::Tensor q = tensor(file, "q").narrow(0, row, 1);
    const at::Tensor k = tensor(file, "k").narrow(0, row, 1);
    const at::Tensor wanted = tensor(file, "loss_rows")[row];
    const at::Tensor wanted_d_q = tensor(file, "d_q_of_row_sum").narrow(0, row, 1);
    const at::Tensor negatives = tensor(file, "bank_per_row")[row];
    with_banks(negatives, at::kDouble, [&](NegativeBank& bank) {
      const Answer got = answer(q, k, bank, scalar(file, "T"));
      EXPECT_LE(max_error(got.rows, wanted), 1e-12);
      EXPECT_LE(max_error(got.d_q, wanted_d_q), 1e-12 * 200);  // The gradient's scale is 2/T.
    });
    with_banks(negatives, at::kFloat, [&](NegativeBank& bank) {
      const Answer got = answer(q.to(at::kFloat), k, bank, scalar(file, "T"));
      EXPECT_LE(max_error(got.rows, wanted), 1e-4);
      EXPECT_LE(max_error(got.d_q, wanted_d_q), 1e-4 * 200);
      // Where probabilities are clamped above zero this row is 87.3, with no gradient.
      if (row == 0) {
        EXPECT_NEAR(got.d_q.norm().item<double>(), 200.0, 0.02);
      }
    });
  }
}

TEST_P(GoldenInfoNce, UsesValidRowsOfAPartlyFilledBankOnly) {
  const GoldenFile file = GoldenFile::open("05_moco_partial_bank");
  for (const std::string name : {"prefix23", "wrap50_30", "newest10_of_wrap", "one", "empty", "full"}) {
    SCOPED_TRACE(name);
    const at::Tensor valid = tensor(file, name + ".valid_idx");
    const at::Tensor wanted = tensor(file, name + ".loss_rows");
    const at::Tensor wanted_d_q = tensor(file, name + ".d_q");
    with_banks(tensor(file, "bank_clean").index_select(0, valid), at::kDouble, [&](NegativeBank& bank) {
      const Answer got = answer(tensor(file, "q"), tensor(file, "k"), bank, scalar(file, "T"));
      EXPECT_LE(max_error(got.rows, wanted), 1e-12);
      EXPECT_LE(max_error(got.loss, tensor(file, name + ".loss")), 1e-12);
      EXPECT_LE(max_error(got.d_q, wanted_d_q), 1e-12);
      if (name == "empty") {
        EXPECT_EQ(got.loss.item<double>(), 0.0);
        EXPECT_TRUE(got.d_q.eq(0).all().item<bool>());
      }
    });
  }
}

TEST_P(GoldenInfoNce, NeverLetsNanRowsOfTheSourceIn) {
  const GoldenFile file = GoldenFile::open("05_moco_partial_bank");
  // All 64 rows are offered, the invalid ones as NaN: they are dropped at the door. Dropping keeps the order, so the
  // wrapped variants see their valid rows in another order, which a sum does not mind.
  for (const std::string name : {"prefix23", "wrap50_30", "one", "full"}) {
    SCOPED_TRACE(name);
    const at::Tensor offered = tensor(file, name + ".bank_nan");
    const std::int64_t valid = tensor(file, name + ".valid_idx").size(0);
    const std::int64_t segment_rows = GetParam().segment_rows == 0 ? 3 : GetParam().segment_rows;
    NegativeBank bank(tiers_.get(), test::bank_options({64, 16, at::kFloat, segment_rows}, GetParam().storage));
    enqueue_in_pieces(bank, offered);
    EXPECT_EQ(bank.size(), valid);
    EXPECT_EQ(bank.rejected_rows(), static_cast<std::uint64_t>(64 - valid));
    const Answer got =
        answer(tensor(file, "q").to(at::kFloat), tensor(file, "k").to(at::kFloat), bank, scalar(file, "T"));
    EXPECT_LE(max_error(got.rows, tensor(file, name + ".loss_rows")), 1e-5);
    EXPECT_LE(relative_error(got.d_q, tensor(file, name + ".d_q")), 1e-4);
  }
}

TEST_P(GoldenInfoNce, CountsDuplicatesWithTheirMultiplicity) {
  const GoldenFile file = GoldenFile::open("06_moco_duplicates");
  with_banks(tensor(file, "bank"), at::kDouble, [&](NegativeBank& bank) {
    const Answer got = answer(tensor(file, "q"), tensor(file, "k"), bank, scalar(file, "T"));
    EXPECT_LE(max_error(got.rows, tensor(file, "loss_rows")), 1e-12);
    EXPECT_LE(max_error(got.loss, tensor(file, "loss")), 1e-12);
    EXPECT_LE(max_error(got.d_q, tensor(file, "d_q")), 1e-12);
    EXPECT_GE(got.rows[1].item<double>(), std::log(3.0));
    // That answer belongs to a loss with a mask over equal ids.
    EXPECT_GT(max_error(got.rows, tensor(file, "loss_rows_same_id_excluded")), 1e-3);
  });
}

TEST_P(GoldenInfoNce, StreamsAThousandRowsInAnySegments) {
  const GoldenFile file = GoldenFile::open("08_stream_segments");
  with_banks(tensor(file, "bank"), at::kHalf, [&](NegativeBank& bank) {
    const Answer got = answer(tensor(file, "q").to(at::kFloat), tensor(file, "k"), bank, scalar(file, "T"));
    EXPECT_LE(max_error(got.rows, tensor(file, "loss_rows")), 2e-5);
    EXPECT_LE(max_error(got.lse, tensor(file, "lse")), 2e-5);
    EXPECT_LE(relative_error(got.d_q, tensor(file, "d_q")), 1e-4);
    // The same half-precision rows in float64, from a wider tile.
    const Answer in_double = answer(tensor(file, "q").to(at::kDouble), tensor(file, "k"), bank, scalar(file, "T"));
    EXPECT_LE(max_error(in_double.rows, tensor(file, "loss_rows")), 1e-12);
    EXPECT_LE(max_error(in_double.d_q, tensor(file, "d_q")), 1e-12);
  });
}

TEST_P(GoldenInfoNce, LosesNoMoreThanItsStorageDtypeDoes) {
  const GoldenFile file = GoldenFile::open("19_bank_dtype_error");
  const at::Tensor temperatures = tensor(file, "T");
  const std::pair<at::ScalarType, std::string> stored[] = {{at::kFloat, ""},
                                                           {at::kHalf, "fp16_bank_worst_row_err"},
                                                           {at::kBFloat16, "bf16_bank_worst_row_err"},
                                                           {at::kChar, "int8_bank_worst_row_err"}};
  for (const auto& [dtype, bound] : stored) {
    SCOPED_TRACE(c10::toString(dtype));
    with_banks(tensor(file, "bank"), dtype, [&, &name = bound](NegativeBank& bank) {
      for (std::int64_t i = 0; i < temperatures.size(0); ++i) {
        const Answer got = answer(tensor(file, "q").to(at::kDouble), tensor(file, "k").to(at::kDouble), bank,
                                  temperatures[i].item<double>());
        const double error = max_error(got.rows, tensor(file, "loss_rows_fp32_bank")[i]);
        const double worst = name.empty() ? 0.0 : tensor(file, name)[i].item<double>();
        EXPECT_LE(error, std::max(1.5 * worst, 1e-12));
        // Storing in the bank's dtype does cost something: otherwise the rows were kept elsewhere.
        EXPECT_TRUE(name.empty() || error > 0.5 * worst) << error;
      }
    });
  }
}

}  // namespace
}  // namespace spillway::queue::streaming_loss_golden_test
