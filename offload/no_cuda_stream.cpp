// Stands for cuda_stream.cpp in a build without CUDA.
#include <spillway/offload/copy_stream.hpp>
#include <spillway/offload/error.hpp>

namespace spillway::offload {

std::unique_ptr<CopyStream> make_cuda_stream() {
  throw Error("this build of Spillway has no CUDA; build it with -DSPILLWAY_CUDA=ON");
}

void* native_cuda_stream(const CopyStream& /*stream*/) noexcept { return nullptr; }

bool cuda_available() noexcept { return false; }

}  // namespace spillway::offload
