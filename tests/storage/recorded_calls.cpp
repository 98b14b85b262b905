#include "storage/recorded_calls.hpp"

#include <fcntl.h>
#include <linux/fs.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdarg>
#include <utility>

namespace spillway::test {
namespace {

using Kind = FileCall::Kind;

RecordedCalls* recorder = nullptr;

std::filesystem::path path_of(int file) {
  std::array<char, 4096> path{};
  const std::string link = "/proc/self/fd/" + std::to_string(file);
  const ssize_t size = ::readlink(link.c_str(), path.data(), path.size());
  return size < 0 ? std::filesystem::path() : std::filesystem::path(std::string(path.data(), path.data() + size));
}

std::filesystem::path path_at(int folder, const char* name) {
  return folder == AT_FDCWD || name[0] == '/' ? std::filesystem::path(name) : path_of(folder) / name;
}

bool is_folder(int file) {
  struct stat status {};
  return ::fstat(file, &status) == 0 && S_ISDIR(status.st_mode);
}

/// Makes a call, by `make`, unless it is to fail, and notes it where it succeeded.
template <typename Make>
long through(FileCall call, const Make& make) {
  if (recorder == nullptr || !recorder->concerns(call.path)) return make();
  if (const auto error = recorder->fails(call)) {
    errno = *error == 0 ? EIO : *error;
    return -1;
  }
  const long result = make();
  if (result >= 0) recorder->note(std::move(call));
  return result;
}

}  // namespace

RecordedCalls::RecordedCalls(const std::filesystem::path& below, std::optional<CallFault> fault)
    : below_(below.string()), fault_(fault) {
  recorder = this;
}

RecordedCalls::~RecordedCalls() { recorder = nullptr; }

bool RecordedCalls::concerns(const std::filesystem::path& path) const { return path.string().starts_with(below_); }

std::optional<int> RecordedCalls::fails(const FileCall& call) {
  ++made_;
  const bool syncs = call.kind == Kind::kSyncFile;
  if (syncs && std::ranges::find(failed_syncs_, call.path) != failed_syncs_.end()) synced_after_failure_ = true;
  if (!fault_ || made_ < fault_->call) return std::nullopt;
  if (made_ > fault_->call && (!fault_->for_good || call.kind == Kind::kRemove)) return std::nullopt;
  if (syncs) failed_syncs_.push_back(call.path);
  return fault_->error_number;
}

void RecordedCalls::note_saved(std::uint64_t step) {
  calls_.push_back({.kind = Kind::kSaved, .path = {}, .step = step});
}

}  // namespace spillway::test

using spillway::test::FileCall;
using spillway::test::path_at;
using spillway::test::path_of;
using spillway::test::recorder;
using spillway::test::through;
using Kind = FileCall::Kind;

extern "C" {

int open(const char* path, int flags, ...) {  // NOLINT(cert-dcl50-cpp): libc's signature.
  std::va_list more;
  va_start(more, flags);
  const mode_t mode = (flags & O_CREAT) != 0 ? va_arg(more, mode_t) : 0;
  va_end(more);
  const auto make = [&] { return ::syscall(SYS_openat, AT_FDCWD, path, flags, mode); };
  if ((flags & O_CREAT) == 0) return static_cast<int>(make());
  return static_cast<int>(through({.kind = Kind::kCreate, .path = path}, make));
}

ssize_t write(int file, const void* bytes, size_t count) {
  const auto make = [&] { return ::syscall(SYS_write, file, bytes, count); };
  if (recorder == nullptr) return make();
  FileCall call{.kind = Kind::kWrite, .path = path_of(file)};
  if (!recorder->concerns(call.path)) return make();
  if (const auto error = recorder->fails(call)) {
    if (*error != 0 || count < 2) {
      errno = *error == 0 ? ENOSPC : *error;
      return -1;
    }
    count /= 2;
  }
  const long written = make();
  if (written > 0) {
    call.bytes.assign(static_cast<const char*>(bytes), static_cast<std::size_t>(written));
    recorder->note(std::move(call));
  }
  return written;
}

int fsync(int file) {
  if (recorder == nullptr) return static_cast<int>(::syscall(SYS_fsync, file));
  const Kind kind = spillway::test::is_folder(file) ? Kind::kSyncFolder : Kind::kSyncFile;
  return static_cast<int>(through({.kind = kind, .path = path_of(file)}, [] { return 0L; }));
}

int mkdir(const char* path, mode_t mode) noexcept {
  return static_cast<int>(
      through({.kind = Kind::kMakeFolder, .path = path}, [&] { return ::syscall(SYS_mkdirat, AT_FDCWD, path, mode); }));
}

int rename(const char* from, const char* to) noexcept {
  return static_cast<int>(through({.kind = Kind::kRename, .path = from, .to = to},
                                  [&] { return ::syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, 0U); }));
}

int renameat2(int folder, const char* from, int to_folder, const char* to, unsigned flags) noexcept {
  const Kind kind = (flags & RENAME_EXCHANGE) != 0 ? Kind::kExchange : Kind::kRename;
  return static_cast<int>(through({.kind = kind, .path = path_at(folder, from), .to = path_at(to_folder, to)},
                                  [&] { return ::syscall(SYS_renameat2, folder, from, to_folder, to, flags); }));
}

int unlinkat(int folder, const char* path, int flags) noexcept {
  return static_cast<int>(through({.kind = Kind::kRemove, .path = path_at(folder, path)},
                                  [&] { return ::syscall(SYS_unlinkat, folder, path, flags); }));
}

int remove(const char* path) noexcept {
  return static_cast<int>(through({.kind = Kind::kRemove, .path = path}, [&] {
    const long result = ::syscall(SYS_unlinkat, AT_FDCWD, path, 0);
    return result < 0 && errno == EISDIR ? ::syscall(SYS_unlinkat, AT_FDCWD, path, AT_REMOVEDIR) : result;
  }));
}

}  // extern "C"
