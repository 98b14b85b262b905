#include "support/seccomp.hpp"

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <system_error>

namespace spillway::test {

void deny(const DeniedCall& call) {
  const auto load = [](std::size_t offset) {
    return sock_filter BPF_STMT(BPF_LD | BPF_W | BPF_ABS, static_cast<std::uint32_t>(offset));
  };
  const auto number = static_cast<std::uint32_t>(call.number);
  const auto refusal = SECCOMP_RET_ERRNO | static_cast<std::uint32_t>(call.error_number);
  std::array<sock_filter, 7> filter{
      load(offsetof(seccomp_data, nr)),
      sock_filter BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, 0, 4),
      load(offsetof(seccomp_data, args) + 8 * call.argument),
      sock_filter BPF_STMT(BPF_ALU | BPF_AND | BPF_K, call.bits),
      sock_filter BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, call.bits, 0, 1),
      sock_filter BPF_STMT(BPF_RET | BPF_K, refusal),
      sock_filter BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  const sock_fprog program{static_cast<unsigned short>(filter.size()), filter.data()};
  if (::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
      ::syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &program) != 0) {
    throw std::system_error(errno, std::generic_category(), "seccomp");
  }
}

}  // namespace spillway::test
