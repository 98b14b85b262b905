#pragma once

#include <cstdint>
#include <string>

#include <spillway/offload/log_sink.hpp>
#include <spillway/offload/unique_fd.hpp>

namespace spillway::offload {

/// A nameless file of mode 0600 in `folder`, so that nothing is left on the disk whatever happens to the process and
/// nobody else can open it. Grows only by preallocation: a full disk shows at start, not in step 9,000.
class SwapFile {
 public:
  /// @throws IoError if the folder is missing, not a folder, or not writable. Falls back from O_TMPFILE to
  /// create-and-unlink (create-new, no link followed) and from direct to buffered I/O, with one line to `log` each.
  SwapFile(const std::string& folder, const LogSink& log);

  /// Preallocates `bytes` (rounded up to pages) more. @throws OutOfSpace: folder, wanted, free, missing; the file keeps
  /// its former size. Where fallocate is not supported zeros are written.
  void grow(std::uint64_t bytes);
  /// Gives back what lies beyond `bytes` (a multiple of kPageBytes, at most size_bytes()). Should the file system
  /// refuse, the space comes back with the file.
  void shrink(std::uint64_t bytes) noexcept;

  [[nodiscard]] int fd() const noexcept { return fd_.get(); }
  [[nodiscard]] bool direct() const noexcept { return direct_; }
  [[nodiscard]] std::uint64_t size_bytes() const noexcept { return size_bytes_; }
  [[nodiscard]] const std::string& folder() const noexcept { return folder_; }

 private:
  std::string folder_;
  UniqueFd fd_;
  bool direct_ = false;
  std::uint64_t size_bytes_ = 0;
};

}  // namespace spillway::offload
