#pragma once

#include <cstdint>
#include <string>

namespace spillway::app {

/// Reads a number of bytes as people write them: 65536, 2e9, 64MiB, 1.5GiB, 10 GB (KiB … TiB are powers of 1024,
/// kB … TB powers of 1000; case does not matter). The result must be a whole number of bytes above 0.
/// @param what  The flag or key that it came from, for the message.
/// @throws ConfigError naming `what`, the text, and the accepted forms.
[[nodiscard]] std::uint64_t parse_byte_size(const std::string& text, const std::string& what);

}  // namespace spillway::app
