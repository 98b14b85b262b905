#include <spillway/app/training/initial_weights.hpp>

#include <string_view>
#include <unordered_set>
#include <utility>
#include <vector>

#include <ATen/core/grad_mode.h>

#include <spillway/app/checkpoint/tensor_file.hpp>
#include <spillway/app/training/resume.hpp>
#include <spillway/offload/error.hpp>

namespace spillway::app {
namespace {

constexpr std::string_view kEncoderPrefix = "encoder.";
constexpr std::string_view kMomentumPrefix = "momentum_encoder.";

/// Where the values of one of the method's tensors come from: what the momentum encoder has comes from the network.
std::string source_of(const std::string& name) {
  return name.starts_with(kMomentumPrefix) ? name.substr(kMomentumPrefix.size()) : name;
}

}  // namespace

std::string load_initial_weights(const std::filesystem::path& path, InitialPart part, TrainingMethod& method) {
  const at::NoGradGuard no_grad;
  const NamedCheckpoint named = find_checkpoint(path);
  const TensorFileReader file(named.found.path / "rank_0.safetensors");
  std::unordered_set<std::string> needed;
  for (const NamedTensor& tensor : method.network().parameters()) needed.insert(tensor.name);
  for (const NamedTensor& tensor : method.network().buffers()) needed.insert(tensor.name);
  std::vector<std::pair<at::Tensor, std::string>> taken;
  for (const NamedTensor& tensor : method.state()) {
    const std::string source = source_of(tensor.name);
    if (part == InitialPart::kEncoder && !source.starts_with(kEncoderPrefix)) continue;
    const TensorEntry* const entry = file.find(source);
    const bool fits = entry != nullptr && tensor.tensor.sizes() == at::IntArrayRef(entry->sizes);
    if (fits) {
      taken.emplace_back(tensor.tensor, source);
    } else if (needed.contains(source)) {
      throw Error(named.found.path.string() + ": its tensor " + source +
                  (entry == nullptr ? " is missing" : " is of another size") +
                  "; start with the encoder and the head that it was made with, or take the encoder alone "
                  "(--init-part encoder)");
    }
  }
  for (auto& [tensor, source] : taken) tensor.copy_(file.read(source));
  method.state_restored();
  return "starts from " + std::string(part == InitialPart::kEncoder ? "the encoder" : "the weights") + " of " +
         named.found.path.string() + ": " + std::to_string(taken.size()) + " tensors";
}

}  // namespace spillway::app
