#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <string_view>
#include <vector>

#include <spillway/offload/error.hpp>
#include <spillway/optimizer/loss_scale.hpp>

#include "support/errors.hpp"

namespace spillway::test::loss_scale_test {
namespace {

using optimizer::LossScale;
using optimizer::LossScaleOptions;
using optimizer::LossScaleRule;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

LossScaleOptions deepspeed() {
  LossScaleOptions options;
  options.rule = LossScaleRule::kDeepSpeed;
  options.init_scale = 256.0;
  options.growth_interval = 3;
  options.min_scale = 1.0;
  options.hysteresis = 2;
  return options;
}

/// The scale after each step; 'x' is one that overflowed.
std::vector<double> trace(LossScale& scale, std::string_view steps) {
  std::vector<double> values;
  for (const char step : steps) {
    scale.update(step == 'x');
    values.push_back(scale.value());
  }
  return values;
}

TEST(LossScaleOfDeepSpeed, BearsOverflowsUpToItsHysteresis) {
  LossScale scale(deepspeed());
  EXPECT_THAT(trace(scale, "xxx"), ElementsAre(256, 128, 64));
}

TEST(LossScaleOfDeepSpeed, GrowsWhereTheStepsSinceTheLastOverflowFillTheWindow) {
  LossScale scale(deepspeed());
  EXPECT_THAT(trace(scale, "......."), ElementsAre(256, 256, 256, 512, 512, 512, 1024));
  EXPECT_THAT(trace(scale, "xx...."), ElementsAre(1024, 512, 512, 512, 512, 1024));
}

TEST(LossScaleOfDeepSpeed, RestoresHysteresisWhenItGrowsOrOnRequestAtEveryGoodStep) {
  LossScale scale(deepspeed());
  EXPECT_THAT(trace(scale, "x.x"), ElementsAre(256, 256, 128));
  EXPECT_THAT(trace(scale, "....x"), ElementsAre(128, 128, 128, 256, 256));
  LossScaleOptions options = deepspeed();
  options.consecutive_hysteresis = true;
  LossScale patient(options);
  EXPECT_THAT(trace(patient, "x.x.xx"), ElementsAre(256, 256, 256, 256, 256, 128));
}

TEST(LossScale, NeverFallsBelowTheSmallestAndSaysWhenThatIsHopeless) {
  LossScaleOptions options;
  options.init_scale = 4.0;
  options.min_scale = 1.0;
  options.overflows_at_min_max = 2;
  LossScale scale(options);
  EXPECT_THAT(trace(scale, "xxx.x"), ElementsAre(2, 1, 1, 1, 1));
  EXPECT_THAT(message_of<Error>([&] { scale.update(true); }), HasSubstr("smallest loss scale"));
}

TEST(LossScale, DoesNotGrowBeyondFloat32) {
  LossScaleOptions options;
  options.init_scale = 0x1p127;
  options.growth_interval = 1;
  LossScale scale(options);
  EXPECT_THAT(trace(scale, ".."), ElementsAre(0x1p127, 0x1p127));
}

TEST(LossScale, GoesOnFromItsStateAsIfNeverInterrupted) {
  for (const LossScaleRule rule : {LossScaleRule::kTorch, LossScaleRule::kDeepSpeed}) {
    LossScaleOptions options = deepspeed();
    options.rule = rule;
    LossScale whole(options);
    trace(whole, "..x..");
    LossScale again(options);
    again.restore(whole.state());
    EXPECT_EQ(trace(again, "..xx....x"), trace(whole, "..xx....x"));
    EXPECT_EQ(again.state(), whole.state());
  }
}

TEST(LossScale, RefusesOptionsThatMakeNoSense) {
  const auto refuses = [](auto change, const char* name) {
    LossScaleOptions options;
    change(options);
    EXPECT_THAT(message_of<ConfigError>([&] { LossScale scale(options); }), HasSubstr(name));
  };
  refuses([](auto& o) { o.init_scale = 0.0; }, "init_scale");
  refuses([](auto& o) { o.init_scale = std::numeric_limits<double>::infinity(); }, "init_scale");
  refuses([](auto& o) { o.growth_factor = 1.0; }, "growth_factor");
  refuses([](auto& o) { o.backoff_factor = 1.0; }, "backoff_factor");
  refuses([](auto& o) { o.growth_interval = 0; }, "growth_interval");
  refuses([](auto& o) { o.min_scale = 1e9; }, "min_scale");
  refuses([](auto& o) { o.hysteresis = 0; }, "hysteresis");
  LossScale scale;
  EXPECT_THROW(scale.restore({.value = -1.0}), ConfigError);
}

}  // namespace
}  // namespace spillway::test::loss_scale_test
