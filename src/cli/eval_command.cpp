#include <spillway/app/cli/eval_command.hpp>

#include <array>
#include <cstdio>
#include <iostream>

#include <spillway/app/config/load_config.hpp>
#include <spillway/app/data/dataset.hpp>
#include <spillway/app/evaluation/evaluate.hpp>
#include <spillway/app/methods/parameter_precision.hpp>
#include <spillway/app/training/resume.hpp>
#include <spillway/app/training/run_checkpoint.hpp>

namespace spillway::app {
namespace {

struct NamedProbe {
  Probe probe;
  std::string_view name;  // As in --probe and in metrics.jsonl.
  std::string_view title;
};
constexpr std::array kProbes = {
    NamedProbe{Probe::kKnn, "knn", "kNN accuracy"},
    NamedProbe{Probe::kLinear, "linear", "linear probe's accuracy"},
    NamedProbe{Probe::kFewLabel, "few_label", "few-label accuracy"},
};

Config config_of(const FoundCheckpoint& found, const EvalFlags& flags) {
  std::vector<Override> overrides;
  if (flags.data) overrides.push_back({"data.source", Json(*flags.data)});
  const std::string text = found.manifest.config.dump();
  const std::string label = (found.path / "manifest.json").string();
  ConfigRequest request{.text = text, .label = label, .overrides = overrides};
  request.world_size = found.manifest.world_size;
  return load_config(request).config;
}

}  // namespace

int run_eval(const EvalFlags& flags) {
  const NamedCheckpoint named = find_checkpoint(flags.checkpoint);
  for (const std::string& note : named.notes) std::cerr << "warning: " << note << "\n";
  const FoundCheckpoint& found = named.found;
  const Config config = config_of(found, flags);
  const Dataset dataset = load_dataset(config.data, config.seed);
  for (const std::string& note : dataset.notes) std::cerr << "warning: " << note << "\n";
  const ImageSet& train = dataset.images.train;
  ProjectedEncoder network = make_network(config, {train.width, train.height, train.channels});
  restore_network(found, network);
  const SplitFeatures features = encoder_features(dataset.images, network);

  Json::Object accuracies;
  std::string lines = found.path.string() + ", on " + dataset.name + ": " + std::to_string(train.size()) +
                      " images to learn from, " + std::to_string(dataset.images.test.size()) + " to test on\n";
  for (const NamedProbe& probe : kProbes) {
    if (flags.probe && *flags.probe != probe.name) continue;
    const double accuracy = evaluate(features, probe.probe, config.evaluation, config.seed);
    accuracies.emplace_back(std::string(probe.name), accuracy);
    std::array<char, 64> line{};
    std::snprintf(line.data(), line.size(), "%-24s %5.1f %%\n", probe.title.data(), accuracy);
    lines += line.data();
  }
  const Json report = Json::Object{{"checkpoint", found.path.string()},
                                   {"step", found.manifest.step},
                                   {"data", dataset.name},
                                   {"accuracy", std::move(accuracies)}};
  std::cout << (flags.json ? report.dump(2) + "\n" : lines);
  return 0;
}

}  // namespace spillway::app
