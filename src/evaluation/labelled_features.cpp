#include <spillway/app/evaluation/labelled_features.hpp>

#include <algorithm>
#include <string>
#include <vector>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>

#include <spillway/offload/error.hpp>

namespace spillway::app {

void check_sets(const LabelledFeatures& train, const LabelledFeatures& test, std::string_view what) {
  if (train.features.size(0) == 0 || test.features.size(0) == 0) {
    throw Error(std::string(what) + ": the training or the test set is empty; change data.train_fraction");
  }
  if (train.features.size(1) != test.features.size(1)) {
    throw Error(std::string(what) + ": training features have " + std::to_string(train.features.size(1)) +
                " columns, test features " + std::to_string(test.features.size(1)));
  }
}

at::Tensor encode_all(const at::Tensor& images, const std::function<at::Tensor(const at::Tensor&)>& encode,
                      std::int64_t batch) {
  const at::NoGradGuard no_grad;
  std::vector<at::Tensor> parts;
  for (std::int64_t first = 0; first < images.size(0); first += batch) {
    parts.push_back(encode(images.narrow(0, first, std::min(batch, images.size(0) - first))));
  }
  return at::cat(parts);
}

}  // namespace spillway::app
