// The CUDA kernel against the CPU's reference, bit for bit.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <vector>

#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>
#include <cuda_runtime_api.h>

#include <spillway/optimizer/unscale_kernel.hpp>

#include "support/property.hpp"

namespace spillway::optimizer::unscale_kernel_test {
namespace {

void expect_success(cudaError_t status) { ASSERT_EQ(status, cudaSuccess) << cudaGetErrorString(status); }

struct CudaFree {
  void operator()(void* memory) const noexcept { cudaFree(memory); }
};

// Device memory with the contents of host memory.
class OnDevice {
 public:
  explicit OnDevice(const std::vector<std::byte>& bytes) : size_(bytes.size()) {
    void* memory = nullptr;
    expect_success(cudaMalloc(&memory, size_ + 1));  // One more: no memory is a null pointer.
    memory_.reset(memory);
    expect_success(cudaMemcpy(memory, bytes.data(), size_, cudaMemcpyHostToDevice));
  }
  [[nodiscard]] void* get() const { return memory_.get(); }
  [[nodiscard]] std::vector<std::byte> read() const {
    std::vector<std::byte> bytes(size_);
    expect_success(cudaMemcpy(bytes.data(), memory_.get(), size_, cudaMemcpyDeviceToHost));
    return bytes;
  }

 private:
  std::size_t size_;
  std::unique_ptr<void, CudaFree> memory_;
};

struct Gradient {
  std::vector<std::byte> bytes;
  std::uint64_t numel;
  GradientType type;
};

// Elements between -100 and 100; the one at `planted_at`, where there is such, is `planted`.
template <typename Element>
Gradient random_gradient(test::Random& random, std::uint64_t numel, GradientType type, std::uint64_t planted_at,
                         float planted) {
  Gradient gradient{std::vector<std::byte>(numel * sizeof(Element)), numel, type};
  for (std::uint64_t i = 0; i < numel; ++i) {
    const auto value = static_cast<Element>(i == planted_at ? planted : static_cast<float>(random.unit() * 200 - 100));
    std::memcpy(gradient.bytes.data() + i * sizeof(Element), &value, sizeof(Element));
  }
  return gradient;
}

// 300 tensors of odd sizes and three types, more than one launch takes; one of them is larger and has `planted`.
std::vector<Gradient> random_gradients(test::Random& random, float planted) {
  std::vector<Gradient> gradients;
  const std::size_t place = random.below(300);
  for (std::size_t i = 0; i < 300; ++i) {
    const std::uint64_t numel = i == place ? 1 + random.below(300'000) : random.below(2'000);
    const std::uint64_t planted_at = i == place ? random.below(numel) : numel;
    switch (i % 3) {
      case 0:
        gradients.push_back(random_gradient<float>(random, numel, GradientType::kFloat32, planted_at, planted));
        break;
      case 1:
        gradients.push_back(random_gradient<c10::Half>(random, numel, GradientType::kFloat16, planted_at, planted));
        break;
      default:
        gradients.push_back(
            random_gradient<c10::BFloat16>(random, numel, GradientType::kBFloat16, planted_at, planted));
    }
  }
  return gradients;
}

void compare_with_reference(test::Random& random, float planted) {
  std::vector<Gradient> gradients = random_gradients(random, planted);
  std::vector<OnDevice> copies;
  std::vector<GradientSpan> device;
  std::vector<GradientSpan> host;
  for (Gradient& gradient : gradients) {
    device.push_back({copies.emplace_back(gradient.bytes).get(), gradient.numel, gradient.type});
    host.push_back({gradient.bytes.data(), gradient.numel, gradient.type});
  }
  const OnDevice found_inf(std::vector<std::byte>(sizeof(float)));
  unscale_and_check_async(device, 0.37F, static_cast<float*>(found_inf.get()), nullptr);
  expect_success(cudaStreamSynchronize(nullptr));
  float found = 0;
  std::memcpy(&found, found_inf.read().data(), sizeof found);
  EXPECT_EQ(found != 0, unscale_and_check(host, 0.37F));
  EXPECT_EQ(found != 0, !std::isfinite(planted));
  if (!std::isfinite(planted)) {
    return;  // A NaN's payload is free to differ.
  }
  for (std::size_t i = 0; i < gradients.size(); ++i) {
    EXPECT_EQ(copies[i].read(), gradients[i].bytes) << "tensor " << i;
  }
}

TEST(UnscaleKernel, EqualsTheReference) {
  int devices = 0;
  if (const cudaError_t status = cudaGetDeviceCount(&devices); status != cudaSuccess || devices == 0) {
    GTEST_SKIP() << "no CUDA device: " << cudaGetErrorString(status);
  }
  test::for_random_seeds(3, [](test::Random& random) {
    compare_with_reference(random, 1.0F);
    compare_with_reference(random, std::numeric_limits<float>::infinity());
    compare_with_reference(random, std::numeric_limits<float>::quiet_NaN());
  });
}

}  // namespace
}  // namespace spillway::optimizer::unscale_kernel_test
