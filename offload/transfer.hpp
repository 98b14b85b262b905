#pragma once

#include <cstdint>
#include <memory>
#include <string_view>

#include <spillway/offload/error.hpp>
#include <spillway/offload/storage_engine.hpp>

namespace spillway::offload {

/// How far one chunk of a transfer has come.
struct TransferProgress {
  std::uint64_t want_bytes = 0;
  std::uint64_t done_bytes = 0;  ///< Where the next try starts: whole pages, so that direct I/O accepts it.
  unsigned idle_tries = 0;       ///< Tries in a row that brought the chunk no page further.
};

/// Tries without progress after which a transfer is given up.
inline constexpr unsigned kIdleTriesMax = 8;

enum class TransferStep : std::uint8_t {
  kComplete,  ///< All bytes have moved.
  kAgain,     ///< Try again from done_bytes on.
  kFailed,    ///< No retry can mend it.
};

/// The one place that decides what the result of a read or write means, whoever made it.
/// @param result  bytes moved by a try that began at done_bytes, or a negative errno value.
/// A short transfer is continued at the last whole page (what came of a broken page is moved again), an interrupted or
/// refused-for-now one is repeated, both at most kIdleTriesMax times without progress. Nothing moved (the end of the
/// file), more moved than asked for, and every other errno are failures.
[[nodiscard]] TransferStep advance(TransferProgress& progress, std::int64_t result) noexcept;

/// Why a transfer failed. Shared, as many requests may fail for one reason. It is data, not an exception: each waiting
/// thread throws an exception of its own, since an exception object that threads share is not free of races.
using FailurePtr = std::shared_ptr<const IoFailure>;

/// Describes a failed try: `result` as given to advance(), `advice` chosen to match.
[[nodiscard]] FailurePtr make_transfer_failure(IoRequest::Operation operation, std::string_view path,
                                               std::uint64_t offset, std::uint64_t bytes, std::int64_t result);

/// Throws OutOfSpace where the errno says so (ENOSPC, EDQUOT), else IoError.
[[noreturn]] void throw_io_failure(const IoFailure& failure);

[[nodiscard]] constexpr std::string_view to_string(IoRequest::Operation operation) noexcept {
  return operation == IoRequest::Operation::kRead ? "read" : "write";
}

}  // namespace spillway::offload
