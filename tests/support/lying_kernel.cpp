#include "support/lying_kernel.hpp"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <stdexcept>
#include <utility>

#include <spillway/offload/aligned_block.hpp>

namespace spillway::test {
namespace {

constexpr std::chrono::milliseconds kDelay{50};

void overwrite(int fd, std::uint64_t offset, std::span<const std::byte> contents) {
  const offload::AlignedBlock copy(contents.size());
  std::copy(contents.begin(), contents.end(), copy.bytes().begin());
  if (::pwrite(fd, copy.bytes().data(), contents.size(), static_cast<off_t>(offset)) !=
      static_cast<ssize_t>(contents.size())) {
    throw std::runtime_error("the disk could not be tampered with");
  }
}

}  // namespace

std::int64_t LyingKernel::tell(Operation operation, int fd, std::span<std::byte> buffer, std::uint64_t offset,
                               std::int64_t result) {
  std::unique_lock lock(mutex_);
  const bool again = victim_ && lies_left_ > 0 && victim_->operation == operation &&
                     victim_->buffer.data() + victim_->buffer.size() == buffer.data() + buffer.size();
  if (!again && ++seen_ == nth_) {
    victim_ = Victim{operation, offset, buffer, {buffer.begin(), buffer.end()}};
    lies_left_ = lie_ == Lie::kAgainThrice ? 3 : 1;
  }
  if (lies_left_ > 0 && victim_->buffer.data() + victim_->buffer.size() == buffer.data() + buffer.size()) {
    --lies_left_;
    result = lie(operation, fd, buffer, offset, result);
  }
  if (operation == Operation::kWrite) {
    remember(buffer, offset);
  }
  if (lie_ == Lie::kDelay && seen_ == nth_ && victim_->offset == offset) {
    std::condition_variable nobody;
    nobody.wait_for(lock, kDelay, [] { return false; });
  }
  return result;
}

std::int64_t LyingKernel::lie(Operation operation, int fd, std::span<std::byte> buffer, std::uint64_t offset,
                              std::int64_t result) {
  const bool read = operation == Operation::kRead;
  switch (lie_) {
    case Lie::kEio:
      return -EIO;
    case Lie::kAgainThrice:
      return -EAGAIN;
    case Lie::kInterrupted:
      return -EINTR;
    case Lie::kNothing:
      return 0;
    case Lie::kNoSpace:
      return -ENOSPC;
    case Lie::kShort: {
      // The rest of the memory is as if nothing had come.
      const std::size_t moved = buffer.size() / 2 + 100;
      if (read) {
        std::fill(buffer.begin() + static_cast<std::ptrdiff_t>(moved), buffer.end(), std::byte{0xEE});
      }
      return static_cast<std::int64_t>(moved);
    }
    case Lie::kBitFlip: {
      std::vector<std::byte> damaged(buffer.begin(), buffer.end());
      damaged[damaged.size() / 3] ^= std::byte{0x10};
      read ? static_cast<void>(std::copy(damaged.begin(), damaged.end(), buffer.begin()))
           : overwrite(fd, offset, damaged);
      return result;
    }
    case Lie::kStale: {
      const auto found = versions_.find(offset);
      std::vector<std::byte> stale(buffer.size());
      if (found != versions_.end()) {  // Of a write it is what stood there before: the current version.
        const auto& version = read ? found->second.former : found->second.current;
        std::copy(version.begin(), version.end(), stale.begin());
      }
      read ? static_cast<void>(std::copy(stale.begin(), stale.end(), buffer.begin())) : overwrite(fd, offset, stale);
      return result;
    }
    case Lie::kDelay:
      return result;
  }
  return result;
}

void LyingKernel::remember(std::span<const std::byte> buffer, std::uint64_t offset) {
  Versions& versions = versions_[offset];
  versions.former = std::move(versions.current);
  versions.current.assign(buffer.begin(), buffer.end());
}

std::optional<LyingKernel::Victim> LyingKernel::victim() const {
  const std::lock_guard lock(mutex_);
  return victim_;
}

}  // namespace spillway::test
