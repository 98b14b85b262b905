#include <mutex>
#include <string>
#include <utility>

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/cat.h>
#include <torch/csrc/autograd/autograd.h>

#include <spillway/offload/check.hpp>
#include <spillway/offload/error.hpp>
#include <spillway/queue/cached_accumulation.hpp>
#include <spillway/queue/loss_arguments.hpp>

namespace spillway::queue {

namespace {

using Views = std::vector<at::Tensor>;

/// The random generators, and where they stood.
class Randomness {
 public:
  explicit Randomness(const std::vector<at::Generator>& more) : generators_(more) {
    generators_.push_back(at::detail::getDefaultCPUGenerator());
  }

  [[nodiscard]] std::vector<at::Tensor> state() {
    std::vector<at::Tensor> states;
    for (at::Generator& generator : generators_) {
      const std::lock_guard lock(generator.mutex());
      states.push_back(generator.get_state());
    }
    return states;
  }

  void set(const std::vector<at::Tensor>& states) {
    for (std::size_t i = 0; i < generators_.size(); ++i) {
      const std::lock_guard lock(generators_[i].mutex());
      generators_[i].set_state(states[i]);
    }
  }

 private:
  std::vector<at::Generator> generators_;
};

/// Puts buffers and generators back as they are when it is made, however the second pass ends.
class AfterFirstPass {
 public:
  AfterFirstPass(const std::vector<at::Tensor>& buffers, Randomness& randomness)
      : buffers_(buffers), randomness_(randomness), states_(randomness.state()) {
    for (const at::Tensor& buffer : buffers) copies_.push_back(buffer.detach().clone());
  }
  AfterFirstPass(const AfterFirstPass&) = delete;
  AfterFirstPass& operator=(const AfterFirstPass&) = delete;
  ~AfterFirstPass() {
    const at::NoGradGuard no_grad;
    for (std::size_t i = 0; i < buffers_.size(); ++i) buffers_[i].copy_(copies_[i]);
    randomness_.set(states_);
  }

 private:
  const std::vector<at::Tensor>& buffers_;
  Randomness& randomness_;
  std::vector<at::Tensor> states_;
  std::vector<at::Tensor> copies_;
};

void check_views(const Views& views, const Views& first, std::int64_t micro_batch) {
  const auto fail = [&](const std::string& what) {
    throw ConfigError("cached accumulation: micro-batch " + std::to_string(micro_batch) + " has " + what);
  };
  if (views.empty()) fail("no embeddings; return one tensor for each view");
  if (views.size() != first.size()) {
    fail(std::to_string(views.size()) + " views, micro-batch 0 has " + std::to_string(first.size()));
  }
  for (std::size_t view = 0; view < views.size(); ++view) {
    const at::Tensor& tensor = views[view];
    if (!tensor.defined() || tensor.dim() == 0 || tensor.sizes().slice(1) != first[view].sizes().slice(1) ||
        tensor.scalar_type() != first[view].scalar_type()) {
      fail("the embeddings " + tensor_text(tensor) + " as view " + std::to_string(view) +
           ", which do not fit those of micro-batch 0, " + tensor_text(first[view]));
    }
  }
}

/// The embeddings of the whole batch, as leaves.
Views join(const std::vector<Views>& encoded) {
  Views joined;
  for (std::size_t view = 0; view < encoded.front().size(); ++view) {
    std::vector<at::Tensor> parts;
    for (const Views& views : encoded) parts.push_back(views[view]);
    joined.push_back(at::cat(parts).requires_grad_());
  }
  return joined;
}

/// One micro-batch with its part of the gradient of the embeddings, which begins at row firsts[view] of each view.
void backward_micro_batch(const Views& again, const Views& before, const Views& joined,
                          std::vector<std::int64_t>& firsts, std::int64_t micro_batch) {
  Views outputs;
  Views gradients;
  check_views(again, before, micro_batch);
  for (std::size_t view = 0; view < again.size(); ++view) {
    const bool same = again[view].sizes() == before[view].sizes() &&
                      at::allclose(again[view].detach(), before[view], /*rtol=*/0, /*atol=*/0, /*equal_nan=*/true);
    if (!same) {
      throw Error("cached accumulation: micro-batch " + std::to_string(micro_batch) +
                  " has other embeddings in the second pass than in the first; encode the same samples in the same " +
                  "modes, and list the random generators that the encoder draws from");
    }
    const std::int64_t rows = before[view].size(0);
    const at::Tensor& gradient = joined[view].grad();
    if (gradient.defined() && again[view].requires_grad()) {
      outputs.push_back(again[view]);
      gradients.push_back(gradient.narrow(0, firsts[view], rows));
    }
    firsts[view] += rows;
  }
  if (!outputs.empty()) torch::autograd::backward(outputs, gradients);
}

}  // namespace

at::Tensor CachedAccumulation::run() const {
  SPILLWAY_CHECK(encode && loss, "cached accumulation has an encoder and a loss");
  if (micro_batches < 1) {
    throw ConfigError("cached accumulation: " + std::to_string(micro_batches) + " micro-batches, wanted 1 at least");
  }
  const at::AutoGradMode gradients(true);
  Randomness randomness(generators);
  std::vector<Views> encoded;
  std::vector<std::vector<at::Tensor>> states;
  for (std::int64_t micro_batch = 0; micro_batch < micro_batches; ++micro_batch) {
    const at::NoGradGuard no_grad;
    states.push_back(randomness.state());
    encoded.push_back(encode(micro_batch));
    check_views(encoded.back(), encoded.front(), micro_batch);
  }
  const Views joined = join(encoded);
  const at::Tensor value = loss(joined);
  value.backward();

  const AfterFirstPass restore(buffers, randomness);
  std::vector<std::int64_t> firsts(joined.size(), 0);
  for (std::int64_t micro_batch = 0; micro_batch < micro_batches; ++micro_batch) {
    const auto index = static_cast<std::size_t>(micro_batch);
    randomness.set(states[index]);
    backward_micro_batch(encode(micro_batch), encoded[index], joined, firsts, micro_batch);
    encoded[index].clear();
  }
  return value.detach();
}

}  // namespace spillway::queue
