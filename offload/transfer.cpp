#include <spillway/offload/transfer.hpp>

#include <cerrno>
#include <string>

namespace spillway::offload {
namespace {

TransferStep retry(TransferProgress& progress) noexcept {
  ++progress.idle_tries;
  return progress.idle_tries >= kIdleTriesMax ? TransferStep::kFailed : TransferStep::kAgain;
}

std::string advice_for(IoRequest::Operation operation, std::uint64_t bytes, std::int64_t result) {
  if (result > 0) {
    return static_cast<std::uint64_t>(result) > bytes
               ? "more bytes were reported than were asked for; the storage driver is at fault"
               : "it ended short again and again; check the disk and the file system";
  }
  switch (-result) {
    case 0:
      return operation == IoRequest::Operation::kRead
                 ? "the file ends before these bytes; it was shortened by somebody else"
                 : "nothing was written and no reason given; check the disk and the file system";
    case ENOSPC:
    case EDQUOT:
      return "free space there, or choose another folder with offload.nvme_path (--nvme-path)";
    case EIO:
      return "the device reports a fault: see the kernel's log (dmesg)";
    case EFBIG:
      return "the file may not become that large: see the limit of the process (ulimit -f) and the file system's";
    case EINTR:
    case EAGAIN:
      return "it was refused again and again; the machine may be out of memory or I/O requests";
    case EINVAL:
      return "the file system does not accept this offset, length or address for direct I/O";
    case EPERM:
    case ENOSYS:
      return "a sandbox may forbid this system call; setting aio.engine to threads avoids io_uring";
    default:
      return "check the disk and the file system";
  }
}

}  // namespace

TransferStep advance(TransferProgress& progress, std::int64_t result) noexcept {
  if (result == -EINTR || result == -EAGAIN) {
    return retry(progress);
  }
  const std::uint64_t rest = progress.want_bytes - progress.done_bytes;
  if (result <= 0 || static_cast<std::uint64_t>(result) > rest) {
    return TransferStep::kFailed;
  }
  const auto moved = static_cast<std::uint64_t>(result);
  if (moved == rest) {
    progress.done_bytes = progress.want_bytes;
    progress.idle_tries = 0;
    return TransferStep::kComplete;
  }
  const std::uint64_t whole_pages = moved / kPageBytes * kPageBytes;
  if (whole_pages == 0) {
    return retry(progress);
  }
  progress.done_bytes += whole_pages;
  progress.idle_tries = 0;
  return TransferStep::kAgain;
}

FailurePtr make_transfer_failure(IoRequest::Operation operation, std::string_view path, std::uint64_t offset,
                                 std::uint64_t bytes, std::int64_t result) {
  return std::make_shared<const IoFailure>(IoFailure{.operation = std::string(to_string(operation)),
                                                     .path = std::string(path),
                                                     .offset = offset,
                                                     .bytes = bytes,
                                                     .error_number = result < 0 ? static_cast<int>(-result) : 0,
                                                     .advice = advice_for(operation, bytes, result)});
}

void throw_io_failure(const IoFailure& failure) {
  if (failure.error_number == ENOSPC || failure.error_number == EDQUOT) {
    throw OutOfSpace(failure);
  }
  throw IoError(failure);
}

}  // namespace spillway::offload
