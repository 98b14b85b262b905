#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <vector>

#include <spillway/offload/copy_stream.hpp>
#include <spillway/offload/error.hpp>

namespace spillway::offload::cuda_stream_test {
namespace {

class CudaStream : public testing::Test {
 protected:
  void SetUp() override {
    if (!cuda_available()) {
      GTEST_SKIP() << "no CUDA device";
    }
  }
};

/// Memory of the current device.
class DeviceMemory {
 public:
  explicit DeviceMemory(std::size_t bytes) : bytes_(bytes) { EXPECT_EQ(cudaMalloc(&data_, bytes), cudaSuccess); }
  ~DeviceMemory() { static_cast<void>(cudaFree(data_)); }
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;
  [[nodiscard]] std::span<std::byte> bytes() const { return {static_cast<std::byte*>(data_), bytes_}; }

 private:
  void* data_ = nullptr;
  std::size_t bytes_;
};

TEST_F(CudaStream, CarriesBytesToTheDeviceAcrossStreamsAndBack) {
  constexpr std::size_t kBytes = std::size_t{8} << 20;
  std::vector<std::byte> source(kBytes);
  std::vector<std::byte> back(kBytes);
  for (std::size_t i = 0; i < kBytes; ++i) {
    source[i] = std::byte(i * 31 % 251);
  }
  const DeviceMemory first(kBytes);
  const DeviceMemory second(kBytes);
  const auto in = make_cuda_stream();
  const auto out = make_cuda_stream();
  for (int round = 0; round < 10; ++round) {
    std::fill(back.begin(), back.end(), std::byte{0});
    in->copy(first.bytes(), source);
    in->copy(second.bytes(), first.bytes());
    out->wait(in->record());
    out->copy(back, second.bytes());
    out->record()->synchronize();
    ASSERT_EQ(back, source) << "round " << round;
    in->wait(out->record());
  }
}

TEST_F(CudaStream, IsANonBlockingStreamOfHighPriority) {
  const auto stream = make_cuda_stream();
  auto* native = static_cast<cudaStream_t>(native_cuda_stream(*stream));
  ASSERT_NE(native, nullptr);
  unsigned flags = 0;
  ASSERT_EQ(cudaStreamGetFlags(native, &flags), cudaSuccess);
  EXPECT_EQ(flags, unsigned{cudaStreamNonBlocking});
  int priority = 0;
  int least = 0;
  int greatest = 0;
  ASSERT_EQ(cudaStreamGetPriority(native, &priority), cudaSuccess);
  ASSERT_EQ(cudaDeviceGetStreamPriorityRange(&least, &greatest), cudaSuccess);
  EXPECT_EQ(priority, greatest);
}

TEST_F(CudaStream, LeavesTheCurrentDeviceAndTheErrorStateAlone) {
  int before = -1;
  ASSERT_EQ(cudaGetDevice(&before), cudaSuccess);
  const auto stream = make_cuda_stream();
  stream->run([] {});
  stream->record()->synchronize();
  int after = -1;
  ASSERT_EQ(cudaGetDevice(&after), cudaSuccess);
  EXPECT_EQ(after, before);
  EXPECT_EQ(cudaPeekAtLastError(), cudaSuccess);
}

}  // namespace
}  // namespace spillway::offload::cuda_stream_test
