#include <spillway/offload/check.hpp>

#include <cstdio>
#include <cstdlib>

namespace spillway {

void check_failed(const char* expression, const char* message, std::source_location where) noexcept {
  std::fprintf(stderr, "spillway: %s:%u: check failed: %s: %s\n", where.file_name(),
               static_cast<unsigned>(where.line()), expression, message);
  std::abort();
}

}  // namespace spillway
