#include <spillway/app/methods/training_method.hpp>

#include <spillway/app/methods/in_batch.hpp>
#include <spillway/app/methods/moco.hpp>
#include <spillway/app/methods/predictive.hpp>

namespace spillway::app {

std::unique_ptr<TrainingMethod> make_method(const Config& config, ImageGeometry geometry,
                                            std::shared_ptr<offload::Tiers> tiers, distributed::Collective* ranks) {
  switch (config.method) {
    case Method::kMoco:
      break;
    case Method::kSimClr:
    case Method::kSupCon:
      return std::make_unique<InBatch>(config, geometry, ranks);
    case Method::kByol:
    case Method::kSimSiam:
      return std::make_unique<Predictive>(config, geometry);
  }
  return std::make_unique<Moco>(config, geometry, std::move(tiers), ranks);
}

}  // namespace spillway::app
