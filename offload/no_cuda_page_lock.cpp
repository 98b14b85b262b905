// Stands for cuda_page_lock.cpp in a build without CUDA.
#include <spillway/offload/page_lock.hpp>

namespace spillway::offload {

PageLock page_lock(std::span<std::byte> /*memory*/) { return {}; }

void page_unlock(std::span<std::byte> /*memory*/) noexcept {}

}  // namespace spillway::offload
