// Neither where gradients and state live nor who owns what changes a bit, and it is what the definition says.
#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include <ATen/Parallel.h>

#include "optimizer/rank_training.hpp"
#include "support/temp_dir.hpp"

namespace spillway::test::sharded_property_test {
namespace {

constexpr std::chrono::milliseconds kPatience{60'000};

bool io_uring_works() {
  static const bool kWorks = io_uring_refusal(std::filesystem::temp_directory_path()).empty();
  return kWorks;
}

OptimizerConfig random_config(Random& random, const TempDir& folder) {
  OptimizerConfig config;
  config.gradients = random.chance(1, 2) ? GradientDevice::kCpu : GradientDevice::kNvme;
  static constexpr std::array<StateDevice, 3> kStates{StateDevice::kNone, StateDevice::kCpu, StateDevice::kNvme};
  config.state = kStates[random.below(3)];
  config.nvme_path = folder.path().string();
  config.sub_group_numel = random.chance(1, 2) ? random.between(1, 1000) : 0;
  config.buffer_count = static_cast<unsigned>(random.between(2, 5));  // So far it reads ahead.
  config.bucket_bytes = random.chance(1, 2) ? random.between(1, 5000) : std::uint64_t{1} << 20U;
  if (random.chance(1, 3)) {
    config.host_bytes = 16U << 20U;  // Room for all that there can be, or nearly.
  }
  config.narrow_gradients = random.chance(1, 2);
  config.tiers_options.engine =
      io_uring_works() && random.chance(1, 4) ? offload::EngineChoice::kIoUring : offload::EngineChoice::kThreads;
  config.tiers_options.log = [](const std::string&) {};
  return config;
}

// `.grad` is of its parameter's type, and one rank's own: then the sums are the same bits.
bool may_stay_in_place(const SharedTraining& training) {
  bool wide = training.world_size() == 1;
  for (const Tensors& group : training.start) {
    for (const at::Tensor& parameter : group) {
      wide = wide && parameter.scalar_type() != at::kBFloat16;
    }
  }
  return wide;
}

std::vector<double> random_weights(Random& random, int world_size) {
  if (random.chance(1, 3)) {
    return {};
  }
  std::vector<double> weights(static_cast<std::size_t>(world_size));
  for (double& weight : weights) {
    weight = random.chance(1, 5) ? 0.0 : random.unit() + 0.05;
  }
  weights[random.below(weights.size())] = 1.0;
  return weights;
}

// How the update is made, which changes bits and has to be the same on all ranks.
void choose_update(Random& random, OptimizerConfig& config, const Recipe& recipe) {
  if (random.chance(1, 2)) {
    return;
  }
  config.kernels = UpdateKernels::kFused;
  if (recipe.name.starts_with("RMSprop") || random.chance(1, 2)) {
    return;
  }
  static constexpr std::array<StateFormat, 3> kFormats{StateFormat::kFloat32, StateFormat::kBFloat16,
                                                       StateFormat::kBlockwise8};
  config.state_format = kFormats[random.below(recipe.name.starts_with("Adam") ? 3 : 2)];
  static constexpr std::array<MasterFormat, 3> kMasters{MasterFormat::kNone, MasterFormat::kFloat32,
                                                        MasterFormat::kRemainder};
  config.masters = kMasters[random.below(3)];
}

struct RanksResult {
  std::vector<std::optional<TrainingResult>> results;
  std::vector<std::string> errors;
};

RanksResult train(const SharedTraining& training, std::vector<OptimizerConfig> configs) {
  RanksResult all{std::vector<std::optional<TrainingResult>>(configs.size()), std::vector<std::string>(configs.size())};
  on_ranks(training.world_size(), kPatience, [&](int rank, auto* exchange, auto* agreement) {
    const auto index = static_cast<std::size_t>(rank);
    try {
      configs[index].gradient_group = exchange;
      configs[index].agreement_group = agreement;
      all.results[index] = train_rank(training, rank, configs[index]);
    } catch (const std::exception& error) {
      all.errors[index] = error.what();
    }
  });
  return all;
}

void expect_equal(const RanksResult& all, const TrainingResult& wanted) {
  for (std::size_t rank = 0; rank < all.results.size(); ++rank) {
    SCOPED_TRACE("rank " + std::to_string(rank) + " of " + std::to_string(all.results.size()));
    EXPECT_EQ(all.errors[rank], "");
    if (all.results[rank]) {
      EXPECT_EQ(differences(all.results[rank]->weights, wanted.weights), "");
      EXPECT_EQ(all.results[rank]->norms, wanted.norms);
      EXPECT_EQ(all.results[rank]->skipped, wanted.skipped);
      EXPECT_EQ(all.results[rank]->scale, wanted.scale);
    }
  }
}

std::string describe(const std::vector<OptimizerConfig>& configs, const Recipe& recipe) {
  std::string text = recipe.name + (configs[0].kernels == UpdateKernels::kFused ? ", fused" : "");
  for (const OptimizerConfig& config : configs) {
    text += ", gradients " + std::to_string(static_cast<int>(config.gradients)) + " and state " +
            std::to_string(static_cast<int>(config.state));
  }
  return text;
}

TEST(ShardedTraining, IsTheSameBitsWhateverTheShardsAndWhereverTheyLive) {
  at::set_num_threads(1);
  for_random_seeds(60, [](Random& random) {
    const TempDir folder("sharded");
    const SharedTraining training = random_training(random);
    const Recipe recipe = all_option_combinations()[training.recipe];
    OptimizerConfig update;
    choose_update(random, update, recipe);
    const bool by_kernels = update.kernels == UpdateKernels::kFused && !recipe.name.starts_with("RMSprop");
    // LibTorch's own step has a definition; that of kernels is their own, everything in memory on as few ranks as
    // give the same sums.
    TrainingResult wanted;
    if (by_kernels) {
      const SharedTraining reference = training.world_size() == 2 ? on_one_rank(training) : training;
      update.state = StateDevice::kCpu;
      update.gradients = GradientDevice::kCpu;
      update.tiers_options.log = [](const std::string&) {};
      const RanksResult all =
          train(reference, std::vector<OptimizerConfig>(static_cast<std::size_t>(reference.world_size()), update));
      ASSERT_EQ(all.errors[0], "");
      wanted = *all.results[0];
    } else {
      wanted = train_by_definition(training);
    }
    for (int variant = 0; variant < 2; ++variant) {
      std::vector<OptimizerConfig> configs;
      const std::uint64_t bucket_bytes = random_config(random, folder).bucket_bytes;
      const std::vector<double> weights = random_weights(random, training.world_size());
      const auto granularity = random.chance(1, 4) ? ShardGranularity::kTensor : ShardGranularity::kBlock;
      for (int rank = 0; rank < training.world_size(); ++rank) {
        OptimizerConfig& config = configs.emplace_back(random_config(random, folder));  // Placement is each rank's own.
        config.bucket_bytes = bucket_bytes;
        config.shard_weights = weights;
        config.shard_granularity = granularity;
        config.kernels = update.kernels;
        config.state_format = update.state_format;
        config.masters = update.masters;
        if (update.kernels == UpdateKernels::kFused && config.state == StateDevice::kNone) {
          config.state = StateDevice::kCpu;
        }
        if (!by_kernels && may_stay_in_place(training) && random.chance(1, 2)) {
          config.gradients = GradientDevice::kInPlace;
        }
      }
      SCOPED_TRACE(describe(configs, recipe));
      expect_equal(train(training, configs), wanted);
    }
  });
}

// Plain accumulation gives what two ranks give, with LibTorch's own step: by definition, as above, and by running it.
TEST(ShardedTraining, OfTwoRanksIsAccumulationOnOne) {
  at::set_num_threads(1);
  for_random_seeds(20, [](Random& random) {
    SharedTraining training = random_training(random);
    if (training.world_size() != 2) {
      return;
    }
    OptimizerConfig config;
    config.state = StateDevice::kCpu;
    config.gradients = GradientDevice::kCpu;
    config.tiers_options.log = [](const std::string&) {};
    const RanksResult one = train(on_one_rank(training), {config});
    ASSERT_EQ(one.errors[0], "");
    expect_equal(train(training, {config, config}), *one.results[0]);
  });
}

}  // namespace
}  // namespace spillway::test::sharded_property_test
