#include <cstddef>
#include <cstdint>
#include <span>

#include "promises.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  spillway::test::keeps_tensors_promise(std::as_bytes(std::span(data, size)));
  return 0;
}
