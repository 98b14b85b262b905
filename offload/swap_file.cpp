#include <spillway/offload/swap_file.hpp>

#include <fcntl.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <limits>

#include <spillway/offload/check.hpp>
#include <spillway/offload/format_bytes.hpp>
#include <spillway/offload/transfer.hpp>

namespace spillway::offload {
namespace {

constexpr char kSetting[] = "offload.nvme_path (--nvme-path)";

[[noreturn]] void throw_unusable(const std::string& folder, int error_number, const std::string& advice) {
  throw IoError(
      {.operation = "open", .path = folder, .offset = 0, .bytes = 0, .error_number = error_number, .advice = advice});
}

void require_folder(const std::string& folder) {
  struct stat status {};
  if (::stat(folder.c_str(), &status) != 0) {
    const int error = errno;
    throw_unusable(folder, error,
                   error == ENOENT
                       ? std::string("there is no such folder: create it, or set ") + kSetting + " to another"
                       : std::string("set ") + kSetting + " to a folder that can be reached");
  }
  if (!S_ISDIR(status.st_mode)) {
    throw_unusable(folder, ENOTDIR, std::string("it is not a folder: set ") + kSetting + " to one");
  }
}

std::string open_advice(int error) {
  switch (error) {
    case EACCES:
    case EPERM:
      return std::string("this user may not write there: change its permissions, or set ") + kSetting + " to another";
    case EROFS:
      return std::string("it is mounted read-only: remount it, or set ") + kSetting + " to another";
    case EMFILE:
    case ENFILE:
      return "no file descriptor is left: raise the limit (ulimit -n)";
    case ENOSPC:
    case EDQUOT:
      return std::string("free space there, or set ") + kSetting + " to another";
    default:
      return std::string("set ") + kSetting + " to a folder on a local disk";
  }
}

// A file that has a name for an instant. The name is new and no link is followed, so that nobody can slip in a file of
// theirs.
UniqueFd open_and_unlink(const std::string& folder) {
  constexpr std::uint64_t kAttempts = 100;
  std::uint64_t salt = 0;
  if (::getrandom(&salt, sizeof salt, 0) != static_cast<ssize_t>(sizeof salt)) {
    salt = static_cast<std::uint64_t>(::getpid());
  }
  int error = 0;
  for (std::uint64_t attempt = 0; attempt < kAttempts; ++attempt) {
    const std::uint64_t number = salt + attempt;
    std::array<char, 40> name{};
    std::snprintf(name.data(), name.size(), "/.spillway-swap-%016llx", static_cast<unsigned long long>(number));
    const std::string path = folder + name.data();
    UniqueFd fd = UniqueFd::adopt(::open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
    if (!fd) {
      error = errno;
      if (error == EEXIST) {
        continue;
      }
      break;
    }
    if (::unlink(path.c_str()) != 0) {
      throw_unusable(folder, errno, "the swap file could not be unlinked; remove " + path);
    }
    return fd;
  }
  throw_unusable(folder, error, open_advice(error));
}

UniqueFd open_nameless(const std::string& folder, const LogSink& log) {
  UniqueFd fd = UniqueFd::adopt(::open(folder.c_str(), O_TMPFILE | O_RDWR | O_EXCL | O_CLOEXEC, 0600));
  if (fd) {
    return fd;
  }
  const int error = errno;
  if (error != EOPNOTSUPP && error != EISDIR && error != ENOENT && error != EINVAL) {
    throw_unusable(folder, error, open_advice(error));
  }
  fd = open_and_unlink(folder);
  log("the file system of " + folder + " has no nameless files; the swap file was created and unlinked instead");
  return fd;
}

// True if direct I/O works at page granularity. The flag alone proves little on some file systems, so the alignment is
// asked for too where the kernel can tell it.
bool enable_direct(int fd) {
  const int flags = ::fcntl(fd, F_GETFL);
  if (flags < 0 || ::fcntl(fd, F_SETFL, flags | O_DIRECT) != 0) {
    return false;
  }
#ifdef STATX_DIOALIGN
  struct statx status {};
  const bool known =
      ::statx(fd, "", AT_EMPTY_PATH, STATX_DIOALIGN, &status) == 0 && (status.stx_mask & STATX_DIOALIGN) != 0;
  if (known && (status.stx_dio_offset_align == 0 || status.stx_dio_offset_align > kPageBytes ||
                status.stx_dio_mem_align > kPageBytes)) {
    static_cast<void>(::fcntl(fd, F_SETFL, flags));
    return false;
  }
#endif
  return true;
}

bool copy_on_write(int fd) {
  constexpr decltype(statfs::f_type) kBtrfs = 0x9123683E;
  constexpr decltype(statfs::f_type) kBcachefs = 0xCA451A4E;
  constexpr decltype(statfs::f_type) kZfs = 0x2FC12FC1;
  struct statfs status {};
  return ::fstatfs(fd, &status) == 0 &&
         (status.f_type == kBtrfs || status.f_type == kBcachefs || status.f_type == kZfs);
}

// "48 MiB wanted, 16 MiB free, 32 MiB missing": as far as it can be known.
std::string shortage(int fd, std::uint64_t wanted) {
  const std::string text = format_bytes(wanted) + " wanted, ";
  struct statvfs status {};
  if (::fstatvfs(fd, &status) != 0) {
    return text + "an unknown number of bytes free";
  }
  const std::uint64_t free = std::uint64_t{status.f_bavail} * status.f_frsize;
  // The file system keeps a part for its own records, so that even what is free may not be had to the last byte.
  return text + format_bytes(free) + " free, " +
         (free < wanted ? format_bytes(wanted - free) : std::string("room for the file system's own records")) +
         " missing";
}

// Returns 0 or an errno value.
int write_zeros(int fd, std::uint64_t offset, std::uint64_t bytes) {
  static constexpr std::uint64_t kPieceBytes = 64 * kPageBytes;
  alignas(kPageBytes) static constexpr std::array<std::byte, kPieceBytes> kZeros{};
  for (std::uint64_t written = 0; written < bytes;) {
    TransferProgress progress{.want_bytes = std::min(kPieceBytes, bytes - written)};
    TransferStep step = TransferStep::kAgain;
    while (step == TransferStep::kAgain) {
      const ssize_t moved = ::pwrite(fd, kZeros.data(), progress.want_bytes - progress.done_bytes,
                                     static_cast<off_t>(offset + written + progress.done_bytes));
      const int error = moved < 0 ? errno : 0;
      step = advance(progress, moved < 0 ? -std::int64_t{error} : moved);
      if (step == TransferStep::kFailed) {
        return error != 0 ? error : EIO;
      }
    }
    written += progress.want_bytes;
  }
  return 0;
}

// Returns 0 or an errno value.
int preallocate(int fd, std::uint64_t offset, std::uint64_t bytes) {
  int error = 0;
  do {
    error = ::fallocate(fd, 0, static_cast<off_t>(offset), static_cast<off_t>(bytes)) == 0 ? 0 : errno;
  } while (error == EINTR);
  if (error == EOPNOTSUPP || error == ENOSYS) {
    return write_zeros(fd, offset, bytes);
  }
  return error;
}

}  // namespace

SwapFile::SwapFile(const std::string& folder, const LogSink& log) : folder_(folder) {
  require_folder(folder);
  fd_ = open_nameless(folder, log);
  if (::fchmod(fd_.get(), 0600) != 0) {  // A default ACL of the folder may have widened it.
    throw_unusable(folder, errno, "the swap file could not be made private");
  }
  direct_ = enable_direct(fd_.get());
  if (!direct_) {
    log("the file system of " + folder + " refuses direct I/O; swapping goes through the page cache");
  }
  if (copy_on_write(fd_.get())) {
    log("the file system of " + folder +
        " copies on write: preallocated space does not guarantee that it can't fill up");
  }
}

void SwapFile::grow(std::uint64_t bytes) {
  const std::uint64_t wanted = page_ceil(bytes);
  const bool representable =
      wanted >= bytes && wanted <= static_cast<std::uint64_t>(std::numeric_limits<off_t>::max()) - size_bytes_;
  const int error = representable ? preallocate(fd_.get(), size_bytes_, wanted) : ENOSPC;
  if (error == 0) {
    size_bytes_ += wanted;
    return;
  }
  shrink(size_bytes_);  // What part of it was allocated goes back at once.
  const bool full = error == ENOSPC || error == EDQUOT;
  throw_io_failure(
      {.operation = "fallocate",
       .path = "the swap file in " + folder_,
       .offset = size_bytes_,
       .bytes = wanted,
       .error_number = error,
       .advice = full ? shortage(fd_.get(), wanted) + "; free space there, or set " + kSetting + " to another folder"
                      : "check the limit of the process (ulimit -f) and the file system"});
}

void SwapFile::shrink(std::uint64_t bytes) noexcept {
  SPILLWAY_CHECK(bytes % kPageBytes == 0 && bytes <= size_bytes_, "a swap file shrinks to whole pages of what it has");
  static_cast<void>(::ftruncate(fd_.get(), static_cast<off_t>(bytes)));
  size_bytes_ = bytes;
}

}  // namespace spillway::offload
