// Which of two values wins: flags before --set, --set before the file, the file before defaults, whatever spelling each
// of them uses.
#include <string>
#include <string_view>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <spillway/app/config/load_config.hpp>
#include <spillway/app/config/old_spellings.hpp>
#include <spillway/offload/error.hpp>

#include "support/errors.hpp"

namespace spillway::app::moved_keys_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

Config load(std::string_view text, const std::vector<std::string>& assignments) {
  std::vector<Override> overrides;
  for (const std::string& assignment : assignments) overrides.push_back(parse_override(assignment));
  const ResolvedConfig resolved = load_config({.text = text, .overrides = overrides});
  EXPECT_THAT(resolved.warnings, IsEmpty()) << text;
  return resolved.config;
}

OffloadDevice device(std::string_view text, const std::vector<std::string>& assignments) {
  return load(text, assignments).zero.offload_optimizer.device;
}

constexpr std::string_view kOldCpu = R"({"zero_optimization": {"cpu_offload": true}})";
constexpr std::string_view kNewNvme = R"({"zero_optimization": {"offload_optimizer": {"device": "nvme"}}})";
constexpr const char* kSetOldTrue = "zero_optimization.cpu_offload=true";
constexpr const char* kSetOldFalse = "zero_optimization.cpu_offload=false";
constexpr const char* kSetNone = "zero_optimization.offload_optimizer.device=none";

TEST(MovedKeys, LetAnOverrideInTheNewSpellingReplaceTheFilesOldOne) {
  EXPECT_EQ(device(kOldCpu, {}), OffloadDevice::kCpu);
  EXPECT_EQ(device(kOldCpu, {kSetNone}), OffloadDevice::kNone);
  constexpr std::string_view kNorm = R"({"optimizer": {"params": {"max_grad_norm": 3}}})";
  EXPECT_EQ(load(kNorm, {}).gradient_clipping, 3.0);
  EXPECT_EQ(load(kNorm, {"gradient_clipping=0"}).gradient_clipping, 0.0);
}

TEST(MovedKeys, LetAnOverrideInTheOldSpellingReplaceTheFilesNewOne) {
  EXPECT_EQ(device(kNewNvme, {kSetOldTrue}), OffloadDevice::kCpu);
  EXPECT_EQ(device(kNewNvme, {kSetOldFalse}), OffloadDevice::kNone);
  EXPECT_EQ(device(kOldCpu, {kSetOldFalse}), OffloadDevice::kNone);
  EXPECT_EQ(load(R"({"gradient_clipping": 1})", {"optimizer.params.max_grad_norm=2"}).gradient_clipping, 2.0);
  EXPECT_EQ(load(R"({"aio": {"intra_op_parallelism": 4}})", {"aio.thread_count=2"}).aio.intra_op_parallelism, 2U);
  EXPECT_THAT(load(R"({"offload": {"nvme_path": "a"}})", {"zero_optimization.offload_optimizer.nvme_path=b"})
                  .offload.nvme_paths,
              ElementsAre("b"));
}

TEST(MovedKeys, LetTheLaterOfTwoOverridesWin) {
  EXPECT_EQ(device("{}", {kSetOldTrue, kSetNone}), OffloadDevice::kNone);
  EXPECT_EQ(device("{}", {kSetNone, kSetOldTrue}), OffloadDevice::kCpu);
}

TEST(MovedKeys, AreReadInAnOverrideThatIsAWholeBlock) {
  const Config config = load(R"({"offload": {"nvme_path": "a"}, "zero_optimization": {"stage": 1}})",
                             {R"(zero_optimization={"offload_optimizer": {"device": "nvme", "nvme_path": "b"}})"});
  EXPECT_EQ(config.zero.stage, 0U) << "the block was replaced";
  EXPECT_THAT(config.offload.nvme_paths, ElementsAre("b"));
  EXPECT_EQ(device(kNewNvme, {R"(zero_optimization={"cpu_offload": true})"}), OffloadDevice::kCpu);
}

TEST(MovedKeys, GoNowhereWithAnOverrideOfNull) {
  EXPECT_EQ(device(kNewNvme, {"zero_optimization.cpu_offload=null"}), OffloadDevice::kNvme);
}

TEST(MovedKeys, KeepTheirTypesInAnOverride) {
  EXPECT_THAT(message_of<ConfigError>([] { (void)load("{}", {"zero_optimization.cpu_offload=1"}); }),
              HasSubstr("zero_optimization.cpu_offload: wanted true or false"));
}

TEST(MovedKeys, MayStandBesideTheNewSpellingThatSaysTheSame) {
  EXPECT_EQ(load(R"({"gradient_clipping": 2, "optimizer": {"params": {"max_grad_norm": 2}}})", {}).gradient_clipping,
            2.0);
}

}  // namespace
}  // namespace spillway::app::moved_keys_test
