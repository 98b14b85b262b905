#include <spillway/app/probe/file_system_name.hpp>

#include <sys/statfs.h>

#include <array>
#include <cstdint>
#include <cstdio>

namespace spillway::app {

std::string file_system_name(const std::string& folder) {
  struct statfs status {};
  if (::statfs(folder.c_str(), &status) != 0) {
    return "unknown";
  }
  switch (static_cast<std::uint32_t>(status.f_type)) {
    case 0xEF53:
      return "ext4";
    case 0x58465342:
      return "xfs";
    case 0x9123683E:
      return "btrfs";
    case 0x01021994:
      return "tmpfs";
    case 0x794C7630:
      return "overlay";
    default: {
      std::array<char, 16> text{};
      std::snprintf(text.data(), text.size(), "0x%x", static_cast<std::uint32_t>(status.f_type));
      return text.data();
    }
  }
}

}  // namespace spillway::app
