#pragma once

#include <cstdint>
#include <functional>

namespace spillway::app {

/// Most bytes that tensors which `body` makes on the CPU take up at one time, as LibTorch's allocator counts them:
/// exact, and nothing that was there before is in it. Scratch memory of the libraries below LibTorch isn't counted.
/// `body` runs in the calling thread, and so does a backward that it begins.
[[nodiscard]] std::uint64_t peak_tensor_bytes(const std::function<void()>& body);

}  // namespace spillway::app
