#pragma once

#include <string>

namespace spillway::app {

/// "ext4", "xfs" and so on; the kernel's magic number for one without a name here, "unknown" where it can't be asked.
[[nodiscard]] std::string file_system_name(const std::string& folder);

}  // namespace spillway::app
