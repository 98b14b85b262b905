#include <spillway/offload/tiers.hpp>

#include <cstdio>
#include <utility>

#include <spillway/offload/check.hpp>
#include <spillway/offload/error.hpp>
#include <spillway/offload/format_bytes.hpp>

namespace spillway::offload {
namespace {

void log_to_stderr(const std::string& line) { std::fprintf(stderr, "spillway: %s\n", line.c_str()); }

TiersOptions with_log(TiersOptions options) {
  if (!options.log) {
    options.log = log_to_stderr;
  }
  options.aio.trace = options.trace.get();
  return options;
}

}  // namespace

Tiers::Tiers(TiersOptions options) : Tiers(std::move(options), nullptr) {}

Tiers::Tiers(TiersOptions options, std::unique_ptr<StorageEngine> engine)
    : options_(with_log(std::move(options))),
      host_(Tier::kHost, options_.host_bytes),
      disk_(Tier::kDisk, options_.disk_bytes),
      engine_(std::move(engine)) {
  if (!options_.nvme_path.empty()) {
    swap_ = std::make_unique<SwapFile>(options_.nvme_path, options_.log);
    if (engine_ == nullptr) {
      engine_ = make_engine(options_.engine, options_.aio, options_.nvme_path, options_.log);
    }
  }
  if (engine_ != nullptr) {
    swap_id_ = engine_->register_file(swap_ ? swap_->fd() : -1, "swap file in " + options_.nvme_path);
  }
}

Tiers::~Tiers() = default;

void Tiers::log(const std::string& line) const { options_.log(line); }

Tiers::SwapSpace Tiers::take_swap(std::uint64_t bytes, const std::string& owner) {
  SPILLWAY_CHECK(bytes > 0, "swap space of no bytes");
  if (!has_disk()) {
    throw ConfigError(owner + " wants " + format_bytes(bytes) +
                      " on disk, but there is no disk tier; set offload.nvme_path (--nvme-path)");
  }
  const std::uint64_t padded = page_ceil(bytes);
  SwapSpace space{disk_.reserve(padded, owner), 0, padded};
  const std::lock_guard lock(swap_mutex_);
  auto offset = swap_space_.try_allocate(padded);
  if (!offset) {
    grow_swap(padded - swap_space_.free_bytes_at_end(), owner);
    offset = swap_space_.try_allocate(padded);
    SPILLWAY_CHECK(offset.has_value(), "a grown swap file has no room");
  }
  space.offset = *offset;
  return space;
}

void Tiers::grow_swap(std::uint64_t bytes, const std::string& owner) {
  // Reservations alone do not bound the file: space that came back in pieces does not shrink it.
  const std::uint64_t size = swap_space_.total_bytes();
  if (bytes > disk_.limit_bytes() - size) {
    throw BudgetExceeded("disk budget of " + format_bytes(disk_.limit_bytes()) + " exceeded: " + owner +
                         " needs the swap file to grow from " + format_bytes(size) + " by " + format_bytes(bytes) +
                         ", because its " + format_bytes(swap_space_.free_bytes()) +
                         " of free space lie in pieces; raise offload.disk_bytes");
  }
  if (swap_ != nullptr) {
    swap_->grow(bytes);
  }
  swap_space_.grow(bytes);
}

void Tiers::give_back_swap(SwapSpace space) noexcept {
  if (space.bytes == 0) {
    return;
  }
  const std::lock_guard lock(swap_mutex_);
  swap_space_.free(space.offset, space.bytes);
}

}  // namespace spillway::offload
