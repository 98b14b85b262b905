#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include <spillway/offload/tiers.hpp>
#include <spillway/queue/negative_bank.hpp>
#include <support/temp_dir.hpp>

namespace spillway::test {

/// Where the banks of a test live.
enum class Storage { kMemory, kUring, kThreads };

[[nodiscard]] std::string to_string(Storage storage);
/// For INSTANTIATE_TEST_SUITE_P.
inline constexpr Storage kEveryStorage[] = {Storage::kMemory, Storage::kUring, Storage::kThreads};

/// Tiers over a temporary folder of their own, which goes when they go. Lines to the user are kept.
class TestTiers {
 public:
  explicit TestTiers(Storage storage, std::uint64_t host_bytes = offload::kUnlimitedBytes);

  [[nodiscard]] const std::shared_ptr<offload::Tiers>& get() const noexcept { return tiers_; }
  [[nodiscard]] Storage storage() const noexcept { return storage_; }
  /// What was logged since the tiers stand.
  [[nodiscard]] const std::vector<std::string>& lines() const noexcept { return *lines_; }

 private:
  Storage storage_;
  std::optional<TempDir> folder_;
  std::shared_ptr<std::vector<std::string>> lines_ = std::make_shared<std::vector<std::string>>();
  std::shared_ptr<offload::Tiers> tiers_;
};

struct BankShape {
  std::int64_t capacity = 0;
  std::int64_t dim = 0;
  at::ScalarType dtype = at::kHalf;
  std::int64_t segment_rows = 0;
  bool labels = false;
  std::int64_t capacity_max = 0;  ///< 0: capacity.
};

/// Rows in a segment with which the golden data is run, from one row to more than there are.
inline constexpr std::int64_t kSegmentRows[] = {1, 7, 64, 4096};

/// Options for a bank of which, on a disk, `resident_segments` segments stay in host memory and the others go to disk;
/// all in memory where `storage` is memory.
[[nodiscard]] queue::BankOptions bank_options(const BankShape& shape, Storage storage,
                                              std::int64_t resident_segments = 2);

/// The valid rows, oldest first, in `dtype` (kFloat or kDouble).
[[nodiscard]] at::Tensor contents(queue::NegativeBank& bank, at::ScalarType dtype = at::kFloat);

/// Rows of one float32 element: first, first + 1, …
[[nodiscard]] at::Tensor ids(std::int64_t first, std::int64_t count);
/// [count] int64: first, first + 1, …
[[nodiscard]] at::Tensor numbers(std::int64_t first, std::int64_t count);

/// Seeded, independent of the platform's default generator's state.
[[nodiscard]] at::Tensor random_rows(std::int64_t rows, std::int64_t dim, std::uint64_t seed,
                                     at::ScalarType dtype = at::kFloat);

}  // namespace spillway::test
