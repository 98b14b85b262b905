#include <spillway/offload/unique_fd.hpp>

#include <unistd.h>

namespace spillway::offload {

UniqueFd::~UniqueFd() {
  if (fd_ >= 0) {
    ::close(fd_);
  }
}

}  // namespace spillway::offload
