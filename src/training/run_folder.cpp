#include <spillway/app/training/run_folder.hpp>

#include <fcntl.h>
#include <sys/file.h>

#include <cerrno>
#include <string>
#include <system_error>

#include <spillway/offload/error.hpp>

namespace spillway::app {
namespace {

[[noreturn]] void refuse(const std::string& operation, const std::filesystem::path& path, int error_number) {
  throw IoError({.operation = operation,
                 .path = path.string(),
                 .error_number = error_number,
                 .advice = "name a folder for the run that can be written (--out)"});
}

}  // namespace

RunFolder::RunFolder(const std::filesystem::path& path) {
  std::error_code error;
  std::filesystem::create_directories(path, error);
  if (error) refuse("create folder", path, error.value());
  folder_ = offload::UniqueFd::adopt(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!folder_) refuse("open folder", path, errno);
  if (::flock(folder_.get(), LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
    throw Error(path.string() +
                ": another run is writing to this folder; wait until it has ended or name another one (--out)");
  }
}

}  // namespace spillway::app
