#include <cuda_runtime_api.h>

#include <spillway/offload/format_bytes.hpp>
#include <spillway/offload/page_lock.hpp>

namespace spillway::offload {

PageLock page_lock(std::span<std::byte> memory) {
  int devices = 0;
  if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) {
    static_cast<void>(cudaGetLastError());  // The runtime remembers it otherwise.
    return {};
  }
  const cudaError_t error = cudaHostRegister(memory.data(), memory.size(), cudaHostRegisterPortable);
  if (error == cudaSuccess) {
    return {true, {}};
  }
  static_cast<void>(cudaGetLastError());
  return {false, format_bytes(memory.size()) +
                     " of buffers could not be page-locked (cudaHostRegister: " + cudaGetErrorString(error) +
                     "); the results are the same, copies to and from the GPU take longer. Raise `ulimit -l`, lower "
                     "offload.host_bytes (--host-budget), or set pin_memory to false"};
}

void page_unlock(std::span<std::byte> memory) noexcept {
  static_cast<void>(cudaHostUnregister(memory.data()));
  static_cast<void>(cudaGetLastError());
}

}  // namespace spillway::offload
