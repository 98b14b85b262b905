// Neither where gradients and state live nor who owns what changes a bit, and it is what the definition says.
#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include <ATen/Parallel.h>

#include "optimizer/rank_training.hpp"
#include "support/temp_dir.hpp"

namespace spillway::test::sharded_property_test {
namespace {

constexpr std::chrono::milliseconds kPatience{60'000};

OptimizerConfig random_config(Random& random, const TempDir& folder) {
  OptimizerConfig config;
  config.gradients = random.chance(1, 2) ? GradientDevice::kCpu : GradientDevice::kNvme;
  static constexpr std::array<StateDevice, 3> kStates{StateDevice::kNone, StateDevice::kCpu, StateDevice::kNvme};
  config.state = kStates[random.below(3)];
  config.nvme_path = folder.path().string();
  config.sub_group_numel = random.chance(1, 2) ? random.between(1, 1000) : 0;
  config.buffer_count = static_cast<unsigned>(random.between(2, 4));
  config.bucket_bytes = random.chance(1, 2) ? random.between(1, 5000) : std::uint64_t{1} << 20U;
  config.tiers_options.engine = offload::EngineChoice::kThreads;
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

TEST(ShardedTraining, IsTheSameBitsWhateverTheShardsAndWhereverTheyLive) {
  at::set_num_threads(1);
  for_random_seeds(60, [](Random& random) {
    const TempDir folder("sharded");
    const SharedTraining training = random_training(random);
    const TrainingResult wanted = train_by_definition(training);
    for (int variant = 0; variant < 2; ++variant) {
      std::vector<OptimizerConfig> configs;
      const std::uint64_t bucket_bytes = random_config(random, folder).bucket_bytes;
      const std::vector<double> weights = random_weights(random, training.world_size());
      for (int rank = 0; rank < training.world_size(); ++rank) {
        configs.push_back(random_config(random, folder));  // Placement is each rank's own affair.
        configs.back().bucket_bytes = bucket_bytes;
        configs.back().shard_weights = weights;
        if (may_stay_in_place(training) && random.chance(1, 2)) {
          configs.back().gradients = GradientDevice::kInPlace;
        }
      }
      std::vector<std::optional<TrainingResult>> results(configs.size());
      std::vector<std::string> errors(configs.size());
      on_ranks(training.world_size(), kPatience, [&](int rank, auto* exchange, auto* agreement) {
        const auto index = static_cast<std::size_t>(rank);
        try {
          configs[index].gradient_group = exchange;
          configs[index].agreement_group = agreement;
          results[index] = train_rank(training, rank, configs[index]);
        } catch (const std::exception& error) {
          errors[index] = error.what();
        }
      });
      for (std::size_t rank = 0; rank < results.size(); ++rank) {
        SCOPED_TRACE("rank " + std::to_string(rank) + " of " + std::to_string(results.size()) + ", gradients " +
                     std::to_string(static_cast<int>(configs[rank].gradients)) + ", state " +
                     std::to_string(static_cast<int>(configs[rank].state)) + ", " +
                     one_of_each_kind()[training.recipe].name);
        EXPECT_EQ(errors[rank], "");
        if (results[rank]) {
          EXPECT_EQ(differences(results[rank]->weights, wanted.weights), "");
          EXPECT_EQ(results[rank]->norms, wanted.norms);
          EXPECT_EQ(results[rank]->skipped, wanted.skipped);
          EXPECT_EQ(results[rank]->scale, wanted.scale);
        }
      }
    }
  });
}

}  // namespace
}  // namespace spillway::test::sharded_property_test
