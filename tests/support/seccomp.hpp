#pragma once

#include <cstdint>

namespace spillway::test {

/// A system call that the kernel is to refuse.
struct DeniedCall {
  int number = 0;        ///< Such as SYS_io_uring_setup.
  int error_number = 0;  ///< What it fails with.
  /// Only calls whose argument `argument` (0 to 5) has all the bits of `bits` in its lower half; all calls if 0.
  unsigned argument = 0;
  std::uint32_t bits = 0;
};

/// From now on the call fails, in all threads of this process and in its children, for good: to be used in a process
/// of its own. Several may be denied one after the other.
/// @throws std::system_error where the kernel has no seccomp filters.
void deny(const DeniedCall& call);

}  // namespace spillway::test
