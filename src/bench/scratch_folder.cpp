#include <spillway/app/bench/scratch_folder.hpp>

#include <stdlib.h>

#include <cerrno>
#include <string>
#include <system_error>

#include <spillway/offload/error.hpp>

namespace spillway::app {

ScratchFolder::ScratchFolder(const std::filesystem::path& parent) {
  std::string name = (parent / "spillway-bench-XXXXXX").string();
  if (::mkdtemp(name.data()) == nullptr) {
    throw IoError({.operation = "mkdtemp",
                   .path = name,
                   .error_number = errno,
                   .advice = "name a folder that can be written to"});
  }
  path_ = name;
}

ScratchFolder::~ScratchFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

}  // namespace spillway::app
