#include <spillway/app/training/run_parts.hpp>

#include <utility>

#include <spillway/app/training/optimizer_factory.hpp>
#include <spillway/distributed/launch.hpp>
#include <spillway/distributed/process_group.hpp>
#include <spillway/offload/error.hpp>

namespace spillway::app {
namespace {

std::vector<at::Tensor> parameters_of(const ProjectedEncoder& network) {
  std::vector<at::Tensor> parameters;
  for (const NamedTensor& parameter : network.parameters()) parameters.push_back(parameter.tensor);
  return parameters;
}

}  // namespace

RunParts::RunParts(const Config& config, const ImageSet& images, distributed::Collective& ranks, offload::LogSink log,
                   std::shared_ptr<offload::Trace> trace)
    : tiers_(make_tiers(config, std::move(log), trace)),
      moco_(config, {images.width, images.height}, tiers_),
      optimizer_(make_optimizer(config, parameters_of(moco_.network()), tiers_)),
      step_(config, images, moco_, *optimizer_, ranks, trace.get()),
      forecast_(bank_options(config), optimizer_->next_step_bytes(), optimizer_->steady_step_bytes(),
                optimizer_->gradient_placement().disk_bytes) {}

std::vector<PlacementRow> RunParts::placement() {
  return placement_rows(moco_.bank().placement(), optimizer_->placement(), optimizer_->gradient_placement());
}

std::uint64_t RunParts::parameter_bytes() {
  std::uint64_t bytes = 0;
  for (const NamedTensor& parameter : moco_.network().parameters()) bytes += parameter.tensor.nbytes();
  return bytes;
}

RunTraffic predict_traffic(TrafficForecast forecast, const RunPlan& plan) {
  RunTraffic traffic;
  for (std::uint64_t index = 0; index < plan.steps(); ++index) {
    traffic.last = forecast.next(plan.rows(index));
    traffic.all.read += traffic.last.read;
    traffic.all.written += traffic.last.written;
  }
  return traffic;
}

std::unique_ptr<distributed::Collective> connect_only_rank() {
  const distributed::RankEnvironment environment = distributed::read_rank_environment();
  if (environment.world_size != 1) {
    throw ConfigError("the environment describes rank " + std::to_string(environment.rank) + " of " +
                      std::to_string(environment.world_size) +
                      ": `spillway train` runs one rank in this version; start it without a launcher");
  }
  return distributed::connect(environment);
}

}  // namespace spillway::app
