#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include <spillway/offload/error.hpp>
#include <spillway/offload/tiers.hpp>

#include "store_fixture.hpp"
#include "support/temp_dir.hpp"

namespace spillway::test {

/// What a store may stand on: the engine in memory, as late or as disorderly as it can be, and the real ones.
enum class EngineUnderStore { kMemoryOnDemand, kMemoryShuffled, kThreads, kUring };

inline std::string name_of(EngineUnderStore engine) {
  switch (engine) {
    case EngineUnderStore::kMemoryOnDemand:
      return "MemoryOnDemand";
    case EngineUnderStore::kMemoryShuffled:
      return "MemoryShuffled";
    case EngineUnderStore::kThreads:
      return "Threads";
    case EngineUnderStore::kUring:
      return "IoUring";
  }
  return {};
}

/// A test that runs over each of them.
class OverEveryEngine : public testing::TestWithParam<EngineUnderStore> {
 protected:
  void SetUp() override {
    if (GetParam() == EngineUnderStore::kUring) {
      try {
        static_cast<void>(make_tiers({}, 1));
      } catch (const IoError& error) {
        GTEST_SKIP() << "io_uring does not work here: " << error.what();
      }
    }
  }

  [[nodiscard]] std::shared_ptr<offload::Tiers> make_tiers(offload::TiersOptions options, std::uint64_t seed) const {
    options.log = [](const std::string&) {};
    options.aio.block_bytes = 64 * 1024;  // Several chunks a block.
    switch (GetParam()) {
      case EngineUnderStore::kMemoryOnDemand:
        return MemoryTiers(MemoryEngine::Ending::kOnDemand, std::move(options), seed).tiers;
      case EngineUnderStore::kMemoryShuffled:
        return MemoryTiers(MemoryEngine::Ending::kShuffled, std::move(options), seed).tiers;
      case EngineUnderStore::kThreads:
        options.engine = offload::EngineChoice::kThreads;
        break;
      case EngineUnderStore::kUring:
        options.engine = offload::EngineChoice::kIoUring;
        break;
    }
    options.nvme_path = folder_.path().string();
    return std::make_shared<offload::Tiers>(std::move(options));
  }

 private:
  TempDir folder_{"store"};
};

inline const auto kEveryEngine = testing::Values(EngineUnderStore::kMemoryOnDemand, EngineUnderStore::kMemoryShuffled,
                                                 EngineUnderStore::kThreads, EngineUnderStore::kUring);

}  // namespace spillway::test
