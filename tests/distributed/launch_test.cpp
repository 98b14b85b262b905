#include <spillway/distributed/launch.hpp>

#include <map>
#include <optional>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <spillway/offload/error.hpp>

namespace spillway::distributed::launch_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using Variables = std::map<std::string, std::string>;

RankEnvironment read(const Variables& variables) {
  return read_rank_environment([&](const std::string& name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    return found == variables.end() ? std::nullopt : std::optional(found->second);
  });
}

/// What torchrun sets, with one variable changed, or removed where `value` is empty.
Variables torchrun_with(const std::string& name = "", const std::optional<std::string>& value = {}) {
  Variables variables{{"RANK", "5"},
                      {"WORLD_SIZE", "8"},
                      {"LOCAL_RANK", "1"},
                      {"MASTER_ADDR", "gpu07.example"},
                      {"MASTER_PORT", "29500"}};
  variables.erase(name);
  if (value) {
    variables[name] = *value;
  }
  return variables;
}

Variables srun_with(const std::string& nodes) {
  return {{"SLURM_PROCID", "3"},
          {"SLURM_STEP_NUM_TASKS", "4"},
          {"SLURM_LOCALID", "1"},
          {"SLURM_JOB_ID", "71234"},
          {"SLURM_STEP_NODELIST", nodes}};
}

void expect_config_error(const Variables& variables, const std::string& variable, const std::string& text) {
  try {
    (void)read(variables);
    ADD_FAILURE() << "no error about " << variable;
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr(variable), HasSubstr(text)));
  }
}

TEST(Launch, IsAWorldOfOneWithoutVariables) {
  const RankEnvironment environment = read({});
  EXPECT_EQ(environment.rank, 0);
  EXPECT_EQ(environment.world_size, 1);
  EXPECT_EQ(environment.local_rank, 0);
}

TEST(Launch, ReadsTorchrunsVariables) {
  Variables variables = torchrun_with("TORCHELASTIC_USE_AGENT_STORE", "True");
  variables["TORCHELASTIC_RESTART_COUNT"] = "2";
  const RankEnvironment environment = read(variables);
  EXPECT_EQ(environment.rank, 5);
  EXPECT_EQ(environment.world_size, 8);
  EXPECT_EQ(environment.local_rank, 1);
  EXPECT_EQ(environment.master_addr, "gpu07.example");
  EXPECT_EQ(environment.master_port, 29500);
  EXPECT_TRUE(environment.launcher_hosts_store);
  EXPECT_EQ(environment.attempt, 2);
}

TEST(Launch, LetsRankZeroServeUnlessTheLauncherDoes) {
  EXPECT_FALSE(read(torchrun_with()).launcher_hosts_store);
  EXPECT_FALSE(read(torchrun_with("TORCHELASTIC_USE_AGENT_STORE", "False")).launcher_hosts_store);
}

TEST(Launch, NeedsNoAddressInAWorldOfOne) {
  EXPECT_EQ(read({{"RANK", "0"}, {"WORLD_SIZE", "1"}, {"LOCAL_RANK", "0"}}).world_size, 1);
}

TEST(Launch, NamesTheVariableThatIsMissing) {
  for (const std::string name : {"RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT"}) {
    expect_config_error(torchrun_with(name), name, "is not set");
  }
}

TEST(Launch, NamesTheVariableThatHoldsNonsense) {
  expect_config_error(torchrun_with("RANK", "five"), "RANK", "'five'");
  expect_config_error(torchrun_with("RANK", "8"), "RANK", "from 0 to 7");
  expect_config_error(torchrun_with("RANK", "-1"), "RANK", "'-1'");
  expect_config_error(torchrun_with("RANK", ""), "RANK", "holds ''");
  expect_config_error(torchrun_with("WORLD_SIZE", "0"), "WORLD_SIZE", "'0'");
  expect_config_error(torchrun_with("WORLD_SIZE", "99999999999"), "WORLD_SIZE", "'99999999999'");
  expect_config_error(torchrun_with("LOCAL_RANK", "1 "), "LOCAL_RANK", "'1 '");
  expect_config_error(torchrun_with("MASTER_PORT", "65536"), "MASTER_PORT", "from 1 to 65535");
  expect_config_error(torchrun_with("MASTER_ADDR", ""), "MASTER_ADDR", "host of rank 0");
  expect_config_error(torchrun_with("TORCHELASTIC_RESTART_COUNT", "x"), "TORCHELASTIC_RESTART_COUNT", "'x'");
}

TEST(Launch, ReadsSrunsVariables) {
  const RankEnvironment environment = read(srun_with("gpu[03-07,12],login1"));
  EXPECT_EQ(environment.rank, 3);
  EXPECT_EQ(environment.world_size, 4);
  EXPECT_EQ(environment.local_rank, 1);
  EXPECT_EQ(environment.master_addr, "gpu03");
  EXPECT_EQ(environment.master_port, 15000 + 71234 % 15000);
  EXPECT_FALSE(environment.launcher_hosts_store);
}

TEST(Launch, TakesTheFirstHostOfANodeList) {
  EXPECT_EQ(read(srun_with("node7")).master_addr, "node7");
  EXPECT_EQ(read(srun_with("a1,b[2-3]")).master_addr, "a1");
  EXPECT_EQ(read(srun_with("rack[5]-ib,rack6")).master_addr, "rack5-ib");
  EXPECT_EQ(read(srun_with("n[12,14-15]")).master_addr, "n12");
  expect_config_error(srun_with(""), "SLURM_STEP_NODELIST", "set MASTER_ADDR");
  expect_config_error(srun_with("n["), "SLURM_STEP_NODELIST", "'n['");
  expect_config_error(srun_with("n[3"), "SLURM_STEP_NODELIST", "no list of hosts");
}

TEST(Launch, PrefersAnAddressThatTheUserSetUnderSrun) {
  Variables variables = srun_with("gpu[1-4]");
  variables["MASTER_ADDR"] = "head";
  variables["MASTER_PORT"] = "4000";
  EXPECT_EQ(read(variables).master_addr, "head");
  EXPECT_EQ(read(variables).master_port, 4000);
}

TEST(Launch, TakesABatchScriptForASingleProcess) {
  EXPECT_EQ(read({{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "4"}, {"SLURM_JOB_ID", "9"}}).world_size, 1);
}

TEST(Launch, PrefersTorchrunStartedBySrun) {
  Variables variables = torchrun_with();
  variables.merge(srun_with("gpu1"));
  EXPECT_EQ(read(variables).rank, 5);
}

}  // namespace
}  // namespace spillway::distributed::launch_test
