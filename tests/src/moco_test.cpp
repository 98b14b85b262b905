#include <spillway/app/methods/moco.hpp>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <ATen/Context.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/rand.h>
#include <gtest/gtest.h>

namespace spillway::app::moco_test {
namespace {

Config small_config() {
  Config config;
  config.encoder.kind = EncoderKind::kMlp;
  config.encoder.hidden = {16};
  config.contrastive.projection_hidden_dim = 16;
  config.contrastive.projection_dim = 8;
  config.contrastive.queue_size = 20;
  config.contrastive.batch_norm_groups = 2;
  config.contrastive.bank.segment_rows = 4;
  config.contrastive.bank.dtype = BankDtype::kFp32;
  return config;
}

std::shared_ptr<offload::Tiers> memory() {
  offload::TiersOptions options;
  options.log = [](const std::string&) {};
  return std::make_shared<offload::Tiers>(std::move(options));
}

at::Tensor images(std::int64_t rows) { return at::rand({rows, 1, 2, 4}); }

TEST(Moco, HasNoLossWithoutNegativesAndAGradientWithThem) {
  const Config config = small_config();
  Moco moco(config, {4, 2}, memory());
  EXPECT_EQ(moco.loss({images(6), images(6)}).item<double>(), 0.0);
  moco.finish_window(true);
  EXPECT_EQ(moco.bank()->size(), 6);

  const at::Tensor loss = moco.loss({images(6), images(6)});
  loss.backward();
  EXPECT_GT(loss.item<double>(), 0.0);
  for (const NamedTensor& parameter : moco.network().parameters()) {
    EXPECT_TRUE(parameter.tensor.grad().defined()) << parameter.name;
  }
}

TEST(Moco, ShowsOneBankToAllMicroBatchesOfAWindow) {
  const Config config = small_config();
  Moco moco(config, {4, 2}, memory());
  (void)moco.loss({images(6), images(6)});
  moco.finish_window(true);
  (void)moco.loss({images(4), images(4)});
  EXPECT_EQ(moco.bank()->size(), 6) << "keys entered before the window ended";
  (void)moco.loss({images(4), images(4)});
  EXPECT_EQ(moco.bank()->size(), 6);
  moco.finish_window(true);
  EXPECT_EQ(moco.bank()->size(), 14);
}

TEST(Moco, ForgetsTheKeysOfAStepThatWasSkippedAndDoesNotFollowIt) {
  const Config config = small_config();
  Moco moco(config, {4, 2}, memory());
  (void)moco.loss({images(6), images(6)});
  moco.finish_window(false);
  EXPECT_EQ(moco.bank()->size(), 0);
  (void)moco.loss({images(4), images(4)});
  moco.finish_window(true);
  EXPECT_EQ(moco.bank()->size(), 4);
}

TEST(Moco, EntersTheKeysOfAWindowInTheOrderOfItsMicroBatches) {
  const Config config = small_config();
  at::manual_seed(5);
  Moco moco(config, {4, 2}, memory());
  at::manual_seed(5);
  const ProjectedEncoder followed(config.encoder, config.contrastive, {4, 2});
  MomentumEncoder twin({config.encoder, config.contrastive, {4, 2}}, followed, config.contrastive.momentum);
  const at::Tensor first = images(4);
  const at::Tensor second = images(6);
  const StreamName name_of_first = {1, 2, 3, 0};
  const StreamName name_of_second = {1, 2, 3, 1};
  const at::Tensor keys = at::cat(
      {twin.encode(first, shuffled_rows(4, name_of_first)), twin.encode(second, shuffled_rows(6, name_of_second))});

  (void)moco.loss({images(4), first, {}, name_of_first});
  (void)moco.loss({images(6), second, {}, name_of_second});
  moco.finish_window(true);

  std::vector<at::Tensor> rows;
  moco.bank()->scan(at::kFloat, [&](const queue::BankTile& tile) { rows.push_back(tile.rows.clone()); });
  EXPECT_TRUE(at::cat(rows).equal(keys));
}

TEST(BankOptions, LimitHostMemoryOnlyWhereTheBankIsOffloaded) {
  Config config = small_config();
  config.offload.host_bytes = 1000;
  config.contrastive.bank.host_bytes = 100;
  EXPECT_EQ(bank_options(config).host_bytes, 1000U);
  EXPECT_FALSE(bank_options(config).disk_allowed);
  config.contrastive.bank.device = OffloadDevice::kNvme;
  EXPECT_EQ(bank_options(config).host_bytes, 100U);
  EXPECT_TRUE(bank_options(config).disk_allowed);
  config.contrastive.bank.host_bytes = 0;
  EXPECT_EQ(bank_options(config).host_bytes, 1000U);
}

}  // namespace
}  // namespace spillway::app::moco_test
