#include <spillway/app/encoders/predictor.hpp>

#include <spillway/app/encoders/heads.hpp>

namespace spillway::app {

class Predictor::Network final : public torch::nn::Module {
 public:
  explicit Network(const HeadShape& shape)
      : predictor(register_module("predictor", std::make_shared<Head>(HeadKind::kBatchNorm, shape))) {}

  std::shared_ptr<Head> predictor;
};

Predictor::Predictor(const ContrastiveConfig& contrastive)
    : network_(
          std::make_shared<Network>(HeadShape{.in = static_cast<std::int64_t>(contrastive.projection_dim),
                                              .hidden = static_cast<std::int64_t>(contrastive.predictor_hidden_dim),
                                              .out = static_cast<std::int64_t>(contrastive.projection_dim),
                                              .groups = static_cast<std::int64_t>(contrastive.batch_norm_groups)})) {}
Predictor::Predictor(Predictor&&) noexcept = default;
Predictor& Predictor::operator=(Predictor&&) noexcept = default;
Predictor::~Predictor() = default;

at::Tensor Predictor::predict(const at::Tensor& projections) {
  return network_->predictor->forward(projections).to(at::kFloat);
}

std::vector<NamedTensor> Predictor::parameters() const {
  std::vector<NamedTensor> list;
  for (const auto& item : network_->named_parameters()) list.push_back({item.key(), item.value()});
  return list;
}

}  // namespace spillway::app
