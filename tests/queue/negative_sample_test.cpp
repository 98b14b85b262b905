// Rows drawn from a bank and fetched alone, and the loss over them.
#include <algorithm>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include <ATen/ops/arange.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <queue/bank_fixture.hpp>
#include <spillway/offload/error.hpp>
#include <spillway/queue/negative_sample.hpp>
#include <spillway/queue/streaming_loss.hpp>
#include <support/golden_torch.hpp>
#include <support/memory_engine.hpp>
#include <support/property.hpp>

namespace spillway::queue::negative_sample_test {
namespace {

using offload::Tier;
using test::GoldenFile;
using test::numbers;
using test::random_rows;
using test::scalar;
using test::Storage;
using test::tensor;
using testing::AllOf;
using testing::HasSubstr;
using testing::ThrowsMessage;

std::int64_t distinct(const at::Tensor& indices) {
  std::set<std::int64_t> seen;
  for (std::int64_t i = 0; i < indices.size(0); ++i) seen.insert(indices[i].item<std::int64_t>());
  return static_cast<std::int64_t>(seen.size());
}

TEST(DrawRows, GivesEachRowTheSameChance) {
  for (const bool replacement : {false, true}) {
    at::Tensor times = at::zeros({10}, at::TensorOptions(at::kLong));
    constexpr int kDraws = 1000;
    for (int seed = 0; seed < kDraws; ++seed) {
      const at::Tensor drawn =
          draw_rows("bank", 10, {.rows = 4, .replacement = replacement, .seed = static_cast<std::uint64_t>(seed)});
      times.index_put_({drawn}, at::ones({4}, times.options()), /*accumulate=*/true);
      if (!replacement) {
        EXPECT_EQ(distinct(drawn), 4);
      }
    }
    // 400 each, with a standard deviation of 19 at most.
    EXPECT_TRUE(times.sub(kDraws * 4 / 10).abs().lt(100).all().item<bool>()) << times;
  }
}

TEST(DrawRows, IsTheSameForTheSameSeedAlone) {
  const SampleOptions options{.rows = 100, .seed = 7};
  const at::Tensor drawn = draw_rows("bank", 1000, options);
  EXPECT_TRUE(drawn.equal(draw_rows("bank", 1000, options)));
  EXPECT_FALSE(drawn.equal(draw_rows("bank", 1000, {.rows = 100, .seed = 8})));
  EXPECT_TRUE(drawn.slice(0, 1).ge(drawn.slice(0, 0, -1)).all().item<bool>());
  // Pinned: another platform has to draw these too.
  EXPECT_TRUE(draw_rows("bank", 6, {.rows = 6, .seed = 1}).equal(numbers(0, 6)));
}

TEST(DrawRows, RefusesMoreThanThereAre) {
  const auto refused = [](std::int64_t population, const SampleOptions& options, const char* text) {
    EXPECT_THAT([&] { (void)draw_rows("my bank", population, options); },
                ThrowsMessage<ConfigError>(AllOf(HasSubstr("my bank: cannot draw"), HasSubstr(text))));
  };
  refused(10, {.rows = 11}, "11 negatives without replacement from 10 valid rows");
  refused(0, {.rows = 1, .replacement = true}, "from 0 valid rows");
  refused(10, {.rows = -1}, "-1 negatives");
  EXPECT_EQ(draw_rows("bank", 10, {.rows = 11, .replacement = true}).size(0), 11);
  EXPECT_EQ(draw_rows("bank", 0, {.rows = 0}).size(0), 0);
}

class Sampling : public testing::TestWithParam<Storage> {
 protected:
  Sampling() : tiers_(GetParam()) {}
  [[nodiscard]] std::uint64_t read_bytes() const { return tiers_.get()->stats().read_bytes; }
  test::TestTiers tiers_;
};

INSTANTIATE_TEST_SUITE_P(Storage, Sampling, testing::ValuesIn(test::kEveryStorage),
                         [](const auto& instance) { return test::to_string(instance.param); });

TEST_P(Sampling, FetchesTheRowsThatAScanShows) {
  for (const at::ScalarType dtype : {at::kHalf, at::kDouble, at::kChar}) {
    for (const std::int64_t segment_rows : test::kSegmentRows) {
      SCOPED_TRACE(std::string(c10::toString(dtype)) + ", " + std::to_string(segment_rows));
      test::BankShape shape{600, 33, dtype, segment_rows};
      shape.labels = true;
      NegativeBank bank(tiers_.get(), test::bank_options(shape, GetParam()));
      bank.enqueue(random_rows(1000, 33, 1), numbers(0, 1000));
      const at::Tensor all = test::contents(bank);
      for (const bool replacement : {false, true}) {
        const SampledNegatives sample = sample_negatives(bank, {.rows = 520, .replacement = replacement, .seed = 3});
        EXPECT_EQ(sample.population, 600);
        EXPECT_EQ(distinct(sample.indices) == 520, !replacement);
        EXPECT_TRUE(sample.rows.equal(all.index_select(0, sample.indices)));
        EXPECT_TRUE(sample.labels.equal(sample.indices.add(400)));
        EXPECT_TRUE(sample.indices.equal(draw_rows("", 600, {.rows = 520, .replacement = replacement, .seed = 3})));
      }
      const at::Tensor mixed = at::tensor({599, 0, 5, 5, 350, 0}, at::TensorOptions(at::kLong));
      EXPECT_TRUE(bank.rows(mixed, at::kDouble).equal(test::contents(bank, at::kDouble).index_select(0, mixed)));
    }
  }
}

TEST_P(Sampling, ReadsThePagesOfItsRowsAndNoMore) {
  NegativeBank bank(tiers_.get(), test::bank_options({4096, 512, at::kHalf, 256}, GetParam(), 1));  // 4 rows a page.
  for (std::uint64_t seed = 0; seed < 16; ++seed) bank.enqueue(random_rows(256, 512, seed));
  bank.flush();
  const bool on_disk = bank.segments_on(Tier::kDisk) > 0;
  EXPECT_EQ(on_disk, GetParam() != Storage::kMemory);
  const auto expect_pages = [&](const at::Tensor& indices, std::uint64_t pages) {
    const std::uint64_t before = read_bytes();
    (void)bank.rows(indices, at::kFloat);
    EXPECT_EQ(read_bytes() - before, on_disk ? pages * offload::kPageBytes : 0) << indices;
  };
  expect_pages(numbers(8, 4), 1);
  expect_pages(numbers(8, 5), 2);
  expect_pages(at::tensor({17, 17, 16, 19}, at::TensorOptions(at::kLong)), 1);
  expect_pages(at::tensor({0, 4 * 20, 4095}, at::TensorOptions(at::kLong)), 3);
  expect_pages(at::tensor({0, 4 * 3}, at::TensorOptions(at::kLong)), 4);  // A gap of two pages is read along.
  expect_pages(at::tensor({255, 256}, at::TensorOptions(at::kLong)), 2);  // In two segments.
  expect_pages(numbers(0, 4096), 1024);
}

TEST_P(Sampling, WorksWhileAScanIsAnnounced) {
  NegativeBank bank(tiers_.get(), test::bank_options({300, 8, at::kHalf, 16}, GetParam()));
  bank.enqueue(random_rows(300, 8, 1));
  const at::Tensor all = test::contents(bank);
  bank.prefetch();
  const SampledNegatives sample = sample_negatives(bank, {.rows = 50, .seed = 1});
  EXPECT_TRUE(sample.rows.equal(all.index_select(0, sample.indices)));
  EXPECT_TRUE(test::contents(bank).equal(all));
  bank.enqueue(random_rows(40, 8, 2));  // While segments are on their way to the disk.
  const at::Tensor later = bank.rows(numbers(0, 300), at::kFloat);
  EXPECT_TRUE(later.equal(test::contents(bank)));
}

TEST_P(Sampling, GivesTheGoldenLosses) {
  const GoldenFile file = GoldenFile::open("17_neg_sampling");
  const at::Tensor q = tensor(file, "q");
  const at::Tensor k = tensor(file, "k");
  const double temperature = scalar(file, "T");
  for (const std::int64_t segment_rows : test::kSegmentRows) {
    SCOPED_TRACE(segment_rows);
    NegativeBank bank(tiers_.get(), test::bank_options({200, 16, at::kDouble, segment_rows}, GetParam()));
    bank.enqueue(tensor(file, "bank"));
    const auto near = [](const at::Tensor& got, const at::Tensor& wanted) {
      return got.sub(wanted).abs().max().item<double>() <= 1e-12;
    };
    EXPECT_TRUE(near(info_nce(q, k, bank, temperature).rows, tensor(file, "loss_rows_full")));
    for (std::int64_t list = 0; list < 3; ++list) {
      const at::Tensor indices = tensor(file, "idx")[list];
      const SampledNegatives sample{bank.rows(indices, at::kDouble), {}, indices, bank.size()};
      const at::Tensor leaf = q.clone().requires_grad_();
      const InfoNceResult plain = info_nce(leaf, k, sample, temperature);
      plain.loss.backward();
      EXPECT_TRUE(near(plain.rows, tensor(file, "loss_rows_sampled")[list]));
      if (list == 0) {
        EXPECT_TRUE(near(leaf.grad(), tensor(file, "d_q_sampled0")));
      }
      const InfoNceResult corrected = info_nce(q, k, sample, temperature, {.correct_sampling = true});
      EXPECT_TRUE(near(corrected.rows, tensor(file, "loss_rows_logQ_corrected")[list]));
      EXPECT_FALSE(near(corrected.rows, plain.rows));
    }
  }
}

TEST(SampledLoss, OfAllRowsIsThatOfTheBankAndMasksByLabel) {
  const test::TestTiers tiers(Storage::kMemory);
  test::BankShape shape{1300, 8, at::kDouble, 64};
  shape.labels = true;
  NegativeBank bank(tiers.get(), test::bank_options(shape, Storage::kMemory));
  bank.enqueue(random_rows(1300, 8, 1), numbers(0, 1300).remainder(3));
  const at::Tensor q = random_rows(5, 8, 2, at::kDouble);
  const at::Tensor k = random_rows(5, 8, 3, at::kDouble);
  const SampledNegatives all = sample_negatives(bank, {.rows = 1300}, at::kDouble);
  const InfoNceOptions masked{.query_labels = numbers(0, 5).remainder(3)};
  EXPECT_TRUE(info_nce(q, k, all, 0.5, masked).rows.equal(info_nce(q, k, bank, 0.5, masked).rows));
  EXPECT_TRUE(info_nce(q, k, all, 0.5, {.correct_sampling = true}).rows.equal(info_nce(q, k, bank, 0.5).rows));
}

TEST(SampledLoss, RefusesRowsOfAnotherBank) {
  const at::Tensor q = random_rows(5, 8, 2);
  const SampledNegatives other{random_rows(5, 9, 1), {}, {}, 5};
  EXPECT_THAT([&] { (void)info_nce(q, q, other, 0.5); }, ThrowsMessage<ConfigError>(HasSubstr("wanted [5, 9]")));
  EXPECT_THAT([&] { (void)info_nce(q, q, SampledNegatives{}, 0.5); },
              ThrowsMessage<ConfigError>(HasSubstr("negatives.rows is undefined")));
  const SampledNegatives unlabelled{random_rows(5, 8, 1), {}, {}, 5};
  EXPECT_THAT([&] { (void)info_nce(q, q, unlabelled, 0.5, {.query_labels = numbers(0, 5)}); },
              ThrowsMessage<ConfigError>(HasSubstr("negatives.labels is undefined")));
}

TEST(RowErrors, NameTheRowThatThereIsNot) {
  const test::TestTiers tiers(Storage::kMemory);
  NegativeBank bank(tiers.get(), test::bank_options({10, 3, at::kHalf, 4}, Storage::kMemory));
  bank.enqueue(random_rows(7, 3, 1));
  const auto refused = [&](const at::Tensor& indices, const char* text) {
    EXPECT_THAT([&] { (void)bank.rows(indices, at::kFloat); }, ThrowsMessage<ConfigError>(HasSubstr(text)));
  };
  refused(numbers(0, 8), "row 7 of 7 valid rows");
  refused(numbers(-1, 2), "row -1 of 7");
  refused(numbers(0, 2).to(at::kInt), "wanted [m] int64");
  refused({}, "undefined");
  EXPECT_EQ(bank.rows(numbers(0, 0), at::kFloat).size(0), 0);
  EXPECT_FALSE(bank.labels(numbers(0, 2)).defined());
}

TEST(RowsFromDisk, AreCheckedPageByPage) {
  auto owned = std::make_unique<test::MemoryEngine>(test::MemoryEngine::Ending::kAtOnce);
  test::MemoryEngine* const engine = owned.get();
  const auto tiers = std::make_shared<offload::Tiers>(offload::TiersOptions{}, std::move(owned));
  NegativeBank bank(tiers,
                    test::bank_options({64, 512, at::kHalf, 16}, Storage::kUring, 1));  // Segments of four pages.
  bank.enqueue(random_rows(64, 512, 1));
  bank.flush();
  const at::Tensor before = bank.rows(numbers(0, 4), at::kFloat);
  engine->disk(offload::kPageBytes, 1)[0] ^= std::byte{1};  // Page 1 of the oldest segment: rows 4 to 7.
  EXPECT_TRUE(bank.rows(numbers(0, 4), at::kFloat).equal(before));
  EXPECT_THAT([&] { (void)bank.rows(numbers(7, 1), at::kFloat); },
              ThrowsMessage<Corruption>(AllOf(HasSubstr("bank: page 1 of cold segment 0"), HasSubstr("damaged"))));
  engine->disk(offload::kPageBytes, 1)[0] ^= std::byte{1};
  EXPECT_NO_THROW((void)bank.rows(numbers(7, 1), at::kFloat));
}

}  // namespace
}  // namespace spillway::queue::negative_sample_test
