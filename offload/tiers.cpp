#include <spillway/offload/tiers.hpp>

#include <algorithm>
#include <array>
#include <cstdio>
#include <utility>

#include <spillway/offload/check.hpp>
#include <spillway/offload/error.hpp>
#include <spillway/offload/format_bytes.hpp>
#include <spillway/offload/striped_engine.hpp>

namespace spillway::offload {
namespace {

constexpr char kSwapLabel[] = "swap file in ";
constexpr std::uint64_t kStripedChunkBytesMax = std::uint64_t{1} << 20;  // So that a block is cut for all paths.

void log_to_stderr(const std::string& line) { std::fprintf(stderr, "spillway: %s\n", line.c_str()); }

TiersOptions with_log(TiersOptions options) {
  if (!options.log) {
    options.log = log_to_stderr;
  }
  options.aio.trace = options.trace.get();
  return options;
}

// What goes where, and which path holds the others up, if one does.
std::string describe_stripes(const std::vector<std::string>& folders, const StripeMap& map,
                             const std::vector<double>& rates) {
  constexpr double kSlow = 0.25;  // Of the fastest.
  std::string text = "swap space is striped in units of " + format_bytes(map.unit_bytes()) + ":";
  std::string slow;
  const double fastest = *std::max_element(rates.begin(), rates.end());
  for (std::size_t path = 0; path < folders.size(); ++path) {
    text += std::string(path == 0 ? " " : ", ") + std::to_string(map.weight(path)) + " of " +
            std::to_string(map.pattern_units()) + " in " + folders[path];
    if (rates[path] > 0 && rates[path] < kSlow * fastest) {
      slow += "; " + folders[path] + " is slow beside the others: without it the space may be faster";
    }
  }
  return text + slow;
}

// A multiple of the chunk: small enough that a block of a few MiB is moved by all paths, and not so small that it is
// cut into a crowd of pieces.
std::uint64_t stripe_unit(std::uint64_t chunk_bytes) {
  constexpr std::uint64_t kSmallest = std::uint64_t{256} << 10;
  return (std::max(kSmallest, chunk_bytes) + chunk_bytes - 1) / chunk_bytes * chunk_bytes;
}

}  // namespace

Tiers::Tiers(TiersOptions options) : Tiers(std::move(options), nullptr) {}

Tiers::Tiers(TiersOptions options, std::unique_ptr<StorageEngine> engine)
    : options_(with_log(std::move(options))),
      host_(Tier::kHost, options_.host_bytes),
      disk_(Tier::kDisk, options_.disk_bytes),
      engine_(std::move(engine)) {
  if (!options_.nvme_path.empty()) {
    swap_ = std::make_unique<SwapStripes>(options_.nvme_path.folders(), options_.log);
  }
  if (engine_ != nullptr) {
    SPILLWAY_CHECK(swap_ == nullptr || swap_->paths() == 1, "one engine is given for several paths");
    swap_id_ = engine_->register_file(swap_ ? swap_->file(0).fd() : -1,
                                      kSwapLabel + (swap_ ? swap_->file(0).folder() : std::string()));
    if (swap_ != nullptr) {
      swap_->set_map(StripeMap(kPageBytes, std::array{1U}));
    }
  } else if (swap_ != nullptr) {
    open_paths();
  }
}

void Tiers::open_paths() {
  const std::vector<std::string>& folders = options_.nvme_path.folders();
  if (!options_.nvme_weights.empty() && options_.nvme_weights.size() != folders.size()) {
    throw ConfigError("there are " + std::to_string(options_.nvme_weights.size()) + " weights for " +
                      std::to_string(folders.size()) + " folders of offload.nvme_path (--nvme-path)");
  }
  if (std::count(options_.nvme_weights.begin(), options_.nvme_weights.end(), 0U) > 0) {
    throw ConfigError("a folder of offload.nvme_path has a weight of 0; leave it out instead");
  }
  const bool several = folders.size() > 1;
  const bool by_rates = several && options_.nvme_weights.empty();
  const TrialOptions trial{.choose = options_.tune,
                           .measure_rates = by_rates,
                           .block_bytes_max = several ? kStripedChunkBytesMax : TrialOptions().block_bytes_max,
                           .host_bytes = options_.host_bytes,
                           .disk_bytes = options_.disk_bytes,
                           .cache_folder = options_.cache_folder};
  EngineOptions aio = options_.aio;
  aio.stats = &stats_;
  aio.sharers = static_cast<unsigned>(folders.size());
  std::vector<std::unique_ptr<StorageEngine>> engines;
  std::vector<StripedEngine::Part> parts;
  std::vector<double> rates;
  std::uint64_t chunk_bytes = 0;
  for (std::size_t path = 0; path < folders.size(); ++path) {
    ChosenEngine chosen = choose_engine(options_.engine, aio, folders[path], options_.log, trial);
    chunk_bytes = std::max(chunk_bytes, chosen.options.block_bytes);
    rates.push_back(chosen.rates.both());
    engines.push_back(std::move(chosen.engine));
    parts.push_back({swap_->file(path).fd(), kSwapLabel + folders[path]});
  }
  const std::vector<unsigned> weights = by_rates  ? stripe_weights(rates)
                                        : several ? options_.nvme_weights
                                                  : std::vector<unsigned>{1};
  const StripeMap map(stripe_unit(chunk_bytes), weights);
  if (several) {
    options_.log(describe_stripes(folders, map, rates));
  }
  swap_->set_map(map);
  if (engines.size() == 1) {
    engine_ = std::move(engines.front());
    swap_id_ = engine_->register_file(parts.front().fd, std::move(parts.front().label));
    return;
  }
  auto striped = std::make_unique<StripedEngine>(std::move(engines), map);
  swap_id_ = striped->register_parts(std::move(parts));
  engine_ = std::move(striped);
}

Tiers::~Tiers() = default;

BackgroundSums& Tiers::sums() {
  std::call_once(sums_flag_, [this] { sums_ = std::make_unique<BackgroundSums>(make_host_stream(), trace()); });
  return *sums_;
}

void Tiers::register_memory(std::span<std::byte> memory) {
  engine_->register_memory(memory);
  const std::string note = engine_->info().note;
  const std::lock_guard lock(note_mutex_);
  if (!note.empty() && !std::exchange(noted_, true)) {
    log(note);
  }
}

std::string Tiers::swap_folders(std::uint64_t offset, std::uint64_t bytes) const {
  return swap_ == nullptr ? std::string("nowhere") : swap_->folders_of(offset, bytes);
}

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
