// Rows as they are stored, 8 bits with a scale among them.
#include <cmath>
#include <limits>
#include <vector>

#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <queue/bank_fixture.hpp>
#include <spillway/queue/row_format.hpp>

namespace spillway::queue::row_format_test {
namespace {

using test::random_rows;
using test::Storage;

at::Tensor decoded(const StoredRows& rows) {
  at::Tensor out = at::empty(rows.values.sizes(), at::TensorOptions(at::kFloat));
  RowFormat::decode(rows, out);
  return out;
}

TEST(Rows8Bit, AreWithinHalfAStepOfTheirLargestMagnitude) {
  const at::Tensor rows = random_rows(50, 33, 1).mul(random_rows(50, 1, 2).exp());
  const StoredRows stored = RowFormat(at::kChar, 33).round(rows);
  const at::Tensor half_step = rows.abs().amax({1}, /*keepdim=*/true).div(127 * 2).mul(1.001);
  EXPECT_TRUE(decoded(stored).sub(rows).abs().le(half_step).all().item<bool>());
  EXPECT_TRUE(stored.values.abs().amax({1}).eq(127).all().item<bool>());  // The whole range is used.
}

TEST(Rows8Bit, KeepZerosAndTellWhatIsNotFinite) {
  at::Tensor rows = random_rows(5, 4, 1);
  rows[0].zero_();
  rows[1][2].fill_(std::numeric_limits<float>::quiet_NaN());
  rows[2][3].fill_(-std::numeric_limits<float>::infinity());
  rows[3].fill_(1e-45F);  // As good as zero: there is no scale for it.
  const StoredRows stored = RowFormat(at::kChar, 4).round(rows);
  const at::Tensor finite = RowFormat::finite(stored);
  const bool wanted[] = {true, false, false, true, true};
  for (std::int64_t i = 0; i < 5; ++i) EXPECT_EQ(finite[i].item<bool>(), wanted[i]) << i;
  EXPECT_TRUE(decoded(stored)[0].eq(0).all().item<bool>());
  EXPECT_TRUE(decoded(stored)[3].eq(0).all().item<bool>());
  EXPECT_FALSE(RowFormat::finite(RowFormat(at::kChar, 4).round(at::full({1, 4}, 1e300, at::TensorOptions(at::kDouble))))
                   .item<bool>());
}

TEST(Rows8Bit, TakeAByteAnElementAndFourARow) {
  EXPECT_EQ(RowFormat(at::kChar, 128).row_bytes(), 132U);
  EXPECT_EQ(RowFormat(at::kChar, 129).row_bytes(), 136U);  // Scales stay aligned.
  EXPECT_EQ(RowFormat(at::kHalf, 129).row_bytes(), 258U);
}

TEST(Rows8Bit, ComeOutOfABankAsTheyWentInOnEveryTier) {
  const at::Tensor rows = random_rows(300, 13, 1);
  const at::Tensor wanted = decoded(RowFormat(at::kChar, 13).round(rows)).narrow(0, 100, 200);
  for (const Storage storage : test::kEveryStorage) {
    const test::TestTiers tiers(storage);
    for (const std::int64_t segment_rows : test::kSegmentRows) {
      NegativeBank bank(tiers.get(), test::bank_options({200, 13, at::kChar, segment_rows}, storage));
      for (std::int64_t first = 0; first < 300; first += 50) bank.enqueue(rows.narrow(0, first, 50));
      EXPECT_TRUE(test::contents(bank).equal(wanted));
      EXPECT_EQ(bank.placement().segment_bytes,
                offload::page_ceil(static_cast<std::uint64_t>(segment_rows) * RowFormat(at::kChar, 13).row_bytes()));
    }
  }
}

}  // namespace
}  // namespace spillway::queue::row_format_test
