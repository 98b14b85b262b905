// The losses within a batch against the golden files. Tolerances are those that the golden data was published with:
// 1e-12 in float64; in float32 2e-5 on rows (1e-4 at a temperature of 0.01), 1e-4 of the largest element on gradients.
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <queue/numerics.hpp>
#include <spillway/queue/contrastive_loss.hpp>
#include <spillway/queue/cosine_loss.hpp>
#include <support/golden_torch.hpp>

namespace spillway::queue::contrastive_loss_golden_test {
namespace {

using test::GoldenFile;
using test::max_error;
using test::normalised;
using test::relative_error;
using test::scalar;
using test::tensor;

at::Tensor leaf(const GoldenFile& file, const std::string& name, at::ScalarType dtype = at::kDouble) {
  return tensor(file, name).to(dtype).requires_grad_();
}

TEST(GoldenNtXent, GivesTheAnswerAtEveryTemperatureInDouble) {
  const GoldenFile file = GoldenFile::open("09_ntxent");
  const at::Tensor temperatures = tensor(file, "T");
  for (std::int64_t i = 0; i < temperatures.size(0); ++i) {
    SCOPED_TRACE(temperatures[i].item<double>());
    const at::Tensor z0 = leaf(file, "z0_raw");
    const at::Tensor z1 = leaf(file, "z1_raw");
    const ContrastiveResult got = nt_xent(normalised(z0), normalised(z1), temperatures[i].item<double>());
    got.loss.backward();
    EXPECT_LE(max_error(got.rows, tensor(file, "loss_rows")[i]), 1e-12);
    EXPECT_LE(max_error(got.loss, tensor(file, "loss")[i]), 1e-12);
    EXPECT_LE(max_error(got.loss.mul(2), tensor(file, "simclr_tf_loss")[i]), 1e-12);
    EXPECT_LE(max_error(z0.grad(), tensor(file, "d_z0_raw")[i]), 1e-12);
    EXPECT_LE(max_error(z1.grad(), tensor(file, "d_z1_raw")[i]), 1e-12);
  }
}

TEST(GoldenNtXent, GivesTheAnswerAtEveryTemperatureInFloat) {
  const GoldenFile file = GoldenFile::open("09_ntxent");
  const at::Tensor temperatures = tensor(file, "T");
  for (std::int64_t i = 0; i < temperatures.size(0); ++i) {
    const double temperature = temperatures[i].item<double>();
    SCOPED_TRACE(temperature);
    const at::Tensor z0 = leaf(file, "z0_raw", at::kFloat);
    const at::Tensor z1 = leaf(file, "z1_raw", at::kFloat);
    const ContrastiveResult got = nt_xent(normalised(z0), normalised(z1), temperature);
    got.loss.backward();
    EXPECT_EQ(got.rows.scalar_type(), at::kFloat);
    EXPECT_LE(max_error(got.rows, tensor(file, "loss_rows")[i]), temperature < 0.05 ? 1e-4 : 2e-5);
    EXPECT_LE(relative_error(z0.grad(), tensor(file, "d_z0_raw")[i]), 1e-4);
    EXPECT_LE(relative_error(z1.grad(), tensor(file, "d_z1_raw")[i]), 1e-4);
  }
}

TEST(GoldenNtXent, KeepsLogitsOfHalfInputsInFloat) {
  const GoldenFile file = GoldenFile::open("09_ntxent");
  const double temperature = scalar(file, "fp16.T");
  const at::Tensor half = leaf(file, "fp16.z0", at::kHalf);
  const ContrastiveResult of_half = nt_xent(half, tensor(file, "fp16.z1"), temperature);
  of_half.loss.backward();
  EXPECT_LE(max_error(of_half.rows, tensor(file, "fp16.loss_rows")), temperature < 0.05 ? 1e-4 : 2e-5);
  EXPECT_LE(max_error(of_half.loss, tensor(file, "fp16.loss")), temperature < 0.05 ? 1e-4 : 2e-5);
  EXPECT_EQ(half.grad().scalar_type(), at::kHalf);
  EXPECT_LE(relative_error(half.grad(), tensor(file, "fp16.d_z0")), 1e-3);  // Rounded to half once.
  const at::Tensor z0 = leaf(file, "fp16.z0", at::kFloat);
  nt_xent(z0, tensor(file, "fp16.z1").to(at::kFloat), temperature).loss.backward();
  EXPECT_LE(relative_error(z0.grad(), tensor(file, "fp16.d_z0")), 1e-4);
}

TEST(GoldenNtXent, IsZeroForOneSample) {
  const GoldenFile file = GoldenFile::open("09_ntxent");
  const at::Tensor z0 = tensor(file, "z0_raw").narrow(0, 0, 1).clone().requires_grad_();
  const ContrastiveResult got = nt_xent(normalised(z0), normalised(tensor(file, "z1_raw").narrow(0, 0, 1)), 0.07);
  got.loss.backward();
  EXPECT_EQ(got.loss.item<double>(), scalar(file, "n1.loss"));
  EXPECT_EQ(z0.grad().abs().max().item<double>(), scalar(file, "n1.d_z0_raw_absmax"));
}

struct SupConCase {
  std::string name;  // As it begins in the file.
  double temperature, base_temperature;
};

SupConOptions sup_con_options(const SupConCase& given, const std::string& form, const std::string& anchors) {
  return {.form = form == "in" ? SupConOptions::Form::kIn : SupConOptions::Form::kOut,
          .anchors = anchors == "one" ? SupConOptions::Anchors::kFirstView : SupConOptions::Anchors::kAllViews,
          .base_temperature = given.base_temperature};
}

TEST(GoldenSupCon, GivesTheAnswerInBothFormsAndContrastModes) {
  const GoldenFile file = GoldenFile::open("10_supcon");
  const at::Tensor labels = tensor(file, "labels");
  for (const SupConCase& given :
       {SupConCase{"T0.07_base0.07", 0.07, 0.07}, {"T0.1_base0.07", 0.1, 0.07}, {"T0.5_base0.5", 0.5, 0.5}}) {
    for (const std::string form : {"out", "in"}) {
      for (const std::string anchors : {"all", "one"}) {
        const std::string name = given.name + "." + form + "." + anchors + ".";
        SCOPED_TRACE(name);
        const SupConOptions options = sup_con_options(given, form, anchors);
        const at::Tensor raw = leaf(file, "feat_raw");
        const at::Tensor features = raw / raw.norm(2, {2}, /*keepdim=*/true);
        const ContrastiveResult got = sup_con(features, labels, given.temperature, options);
        got.loss.backward();
        EXPECT_LE(max_error(got.rows, tensor(file, name + "loss_rows")), 1e-12);
        EXPECT_LE(max_error(got.loss, tensor(file, name + "loss")), 1e-12);
        EXPECT_LE(max_error(raw.grad(), tensor(file, name + "d_feat_raw")), 1e-12);
        const at::Tensor in_float = leaf(file, "feat_raw", at::kFloat);
        const ContrastiveResult got_float =
            sup_con(in_float / in_float.norm(2, {2}, /*keepdim=*/true), labels, given.temperature, options);
        got_float.loss.backward();
        EXPECT_LE(max_error(got_float.rows, tensor(file, name + "loss_rows")), 2e-5);
        EXPECT_LE(relative_error(in_float.grad(), tensor(file, name + "d_feat_raw")), 1e-4);
      }
    }
  }
}

// Row 22 of the list of others' bugs: NaN where an anchor has no positive, and which anchors the mean is over.
TEST(GoldenSupCon, IsFiniteForAnchorsWithoutPositivesInBothMeans) {
  const GoldenFile file = GoldenFile::open("10_supcon");
  const at::Tensor labels = tensor(file, "labels");
  const std::vector<std::pair<SupConOptions::Mean, std::string>> means{
      {SupConOptions::Mean::kAllAnchors, "all_anchors"},
      {SupConOptions::Mean::kAnchorsWithPositives, "anchors_with_pos"}};
  for (const auto& [mean, name] : means) {
    SCOPED_TRACE(name);
    const at::Tensor raw = tensor(file, "feat_raw").narrow(1, 0, 1).clone().requires_grad_();
    const ContrastiveResult got =
        sup_con(raw / raw.norm(2, {2}, /*keepdim=*/true), labels, 0.07, {.mean = mean, .base_temperature = 0.07});
    got.loss.backward();
    EXPECT_LE(max_error(got.rows, tensor(file, "v1.loss_rows")), 1e-12);
    EXPECT_TRUE(got.rows.ne(0).equal(tensor(file, "v1.has_pos")));
    EXPECT_LE(max_error(got.loss, tensor(file, "v1.loss_mean_" + name)), 1e-12);
    const std::string gradient = mean == SupConOptions::Mean::kAllAnchors ? "all" : "with_pos";
    EXPECT_LE(max_error(raw.grad(), tensor(file, "v1.d_feat_raw_mean_" + gradient)), 1e-12);
  }
}

// Row 22: identical features give log(2N - 1), which others' T / base_T hides.
TEST(GoldenSupCon, TakesOneLabelForAllAndViewsWithoutLabels) {
  const GoldenFile file = GoldenFile::open("10_supcon");
  const at::Tensor raw = leaf(file, "feat_raw");
  const ContrastiveResult same =
      sup_con(raw / raw.norm(2, {2}, /*keepdim=*/true), at::zeros({8}, at::kLong), 0.07, {.base_temperature = 0.07});
  same.loss.backward();
  EXPECT_LE(max_error(same.loss, tensor(file, "same.loss")), 1e-12);
  EXPECT_LE(max_error(raw.grad(), tensor(file, "same.d_feat_raw")), 1e-12);

  const at::Tensor views = leaf(file, "v3.feat_raw");
  const ContrastiveResult three = sup_con(views / views.norm(2, {2}, /*keepdim=*/true), {}, 0.1, {});
  three.loss.backward();
  EXPECT_LE(max_error(three.loss, tensor(file, "v3.loss")), 1e-12);
  EXPECT_LE(max_error(views.grad(), tensor(file, "v3.d_feat_raw")), 1e-12);

  const at::Tensor identical = at::full({8, 2, 16}, 0.25, at::kDouble);
  EXPECT_NEAR(sup_con(identical, {}, 0.1, {.base_temperature = 0.1}).loss.item<double>(), std::log(15.0), 1e-12);
}

TEST(GoldenDecoupledContrastive, GivesTheAnswer) {
  const GoldenFile file = GoldenFile::open("18_dcl");
  const at::Tensor z0 = leaf(file, "z0_raw");
  const at::Tensor z1 = leaf(file, "z1_raw");
  const ContrastiveResult got = decoupled_contrastive(normalised(z0), normalised(z1), scalar(file, "T"));
  got.loss.backward();
  EXPECT_LE(max_error(got.loss, tensor(file, "loss")), 1e-12);
  EXPECT_LE(max_error(z0.grad(), tensor(file, "d_z0_raw")), 1e-12);
  EXPECT_LE(max_error(z1.grad(), tensor(file, "d_z1_raw")), 1e-12);
  const at::Tensor in_float = leaf(file, "z0_raw", at::kFloat);
  const ContrastiveResult got_float =
      decoupled_contrastive(normalised(in_float), normalised(z1.detach().to(at::kFloat)), scalar(file, "T"));
  got_float.loss.backward();
  EXPECT_LE(max_error(got_float.loss, tensor(file, "loss")), 2e-5);
  EXPECT_LE(relative_error(in_float.grad(), tensor(file, "d_z0_raw")), 1e-4);
}

/// The batch of file 12 as its encoder makes it.
struct Encoded {
  explicit Encoded(const GoldenFile& file)
      : weight(leaf(file, "W")), h0(tensor(file, "x0").matmul(weight.t())), h1(tensor(file, "x1").matmul(weight.t())) {}
  at::Tensor weight, h0, h1;
};

TEST(GoldenClip, GivesTheAnswerWithTheGradientOfItsScale) {
  const GoldenFile file = GoldenFile::open("12_dist_uneven_3_5");
  const Encoded encoded(file);
  const at::Tensor log_scale = at::full({}, -std::log(0.07), at::kDouble).requires_grad_();
  const ContrastiveResult got = clip_loss(normalised(encoded.h0), normalised(encoded.h1), log_scale);
  got.loss.backward();
  EXPECT_LE(max_error(got.loss, tensor(file, "clip.loss")), 1e-12);
  EXPECT_LE(max_error(encoded.weight.grad(), tensor(file, "clip.d_W")), 1e-12);
  EXPECT_LE(max_error(log_scale.grad(), tensor(file, "clip.d_log_scale")), 1e-12);
  EXPECT_LE(max_error(got.rows.mean(), got.loss), 1e-12);
}

TEST(GoldenByol, GivesTheAnswerAndNoGradientOfTheTargets) {
  const GoldenFile file = GoldenFile::open("11_byol_simsiam");
  const at::Tensor p1 = leaf(file, "p1");
  const at::Tensor p2 = leaf(file, "p2");
  const at::Tensor z1 = leaf(file, "z1");
  const at::Tensor z2 = leaf(file, "z2");
  const at::Tensor loss = byol_loss(p1, p2, z1, z2);
  loss.backward();
  const at::Tensor rows = (negative_cosine(p1, z2) + negative_cosine(p2, z1)) * 2 + 4;
  EXPECT_LE(max_error(rows, tensor(file, "byol_rows")), 1e-12);
  EXPECT_LE(max_error(loss, tensor(file, "byol_loss")), 1e-12);
  // A row of length 6e-6 has a gradient of 1e5: the errors are relative.
  EXPECT_LE(relative_error(p1.grad(), tensor(file, "byol_d_p1")), 1e-12);
  EXPECT_LE(relative_error(p2.grad(), tensor(file, "byol_d_p2")), 1e-12);
  EXPECT_FALSE(z1.grad().defined());
  EXPECT_FALSE(z2.grad().defined());
}

TEST(GoldenSimSiam, GivesTheAnswer) {
  const GoldenFile file = GoldenFile::open("11_byol_simsiam");
  const at::Tensor p1 = leaf(file, "p1");
  const at::Tensor p2 = leaf(file, "p2");
  const at::Tensor loss = simsiam_loss(p1, p2, tensor(file, "z1"), tensor(file, "z2"));
  loss.backward();
  EXPECT_LE(max_error(loss, tensor(file, "simsiam_loss")), 1e-12);
  EXPECT_LE(max_error(negative_cosine(p1, tensor(file, "z2")), tensor(file, "neg_cos_p1_z2_rows")), 1e-12);
  EXPECT_LE(relative_error(p1.grad(), tensor(file, "simsiam_d_p1")), 1e-12);
  EXPECT_LE(relative_error(p2.grad(), tensor(file, "simsiam_d_p2")), 1e-12);
}

TEST(GoldenNegativeCosine, TakesLengthsOfDenormalHalfRowsInFloat) {
  const GoldenFile file = GoldenFile::open("11_byol_simsiam");
  const at::Tensor p1 = leaf(file, "fp16.p1", at::kFloat);
  const at::Tensor rows = negative_cosine(p1, tensor(file, "fp16.z2"));
  rows.mean().backward();
  EXPECT_LE(max_error(rows, tensor(file, "fp16.neg_cos_rows")), 2e-5);
  EXPECT_LE(relative_error(p1.grad(), tensor(file, "fp16.d_p1_of_mean")), 1e-4);
  EXPECT_TRUE(negative_cosine(tensor(file, "fp16.p1"), tensor(file, "fp16.z2")).equal(rows.detach()));
}

TEST(GoldenNegativeCosine, GivesARowOfZerosTheValueAndTheGradientZero) {
  const GoldenFile file = GoldenFile::open("11_byol_simsiam");
  const at::Tensor p = at::zeros({1, 32}, at::kDouble).requires_grad_();
  const at::Tensor rows = negative_cosine(p, tensor(file, "z2").narrow(0, 0, 1));
  rows.sum().backward();
  EXPECT_EQ(max_error(rows, tensor(file, "zero_row_value")), 0.0);
  EXPECT_EQ(p.grad().abs().max().item<double>(), 0.0);  // torch's own has zero_row_grad_absmax_torch: 1e11.
}

}  // namespace
}  // namespace spillway::queue::contrastive_loss_golden_test
