#include <spillway/offload/tuning_cache.hpp>

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cinttypes>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <span>
#include <thread>
#include <utility>

#include <spillway/offload/checksum.hpp>

namespace spillway::offload {
namespace {

constexpr std::size_t kFileBytesMax = 8192;
constexpr std::chrono::milliseconds kLockWait{3'000};
constexpr std::chrono::milliseconds kLockPause{10};

std::string sixteen_digits(std::uint64_t value) {
  std::array<char, 17> text{};
  std::snprintf(text.data(), text.size(), "%016" PRIx64, value);
  return text.data();
}

std::uint64_t hash_of(const std::string& text) { return xxh3_64(std::as_bytes(std::span(text))); }

// What a file holds: the key, the setting, and a checksum over both.
std::string encode(const std::string& key, const DiskSetting& setting) {
  std::array<char, 160> line{};
  std::snprintf(line.data(), line.size(), "%" PRIu64 " %u %.0f %.0f\n", setting.block_bytes, setting.queue_depth,
                setting.rates.read, setting.rates.overwrite);
  const std::string body = key + "\n" + line.data();
  return body + sixteen_digits(hash_of(body)) + "\n";
}

bool sensible(const DiskSetting& setting) {
  constexpr std::uint64_t kBytesMax = std::uint64_t{1} << 30U;
  constexpr unsigned kDepthMax = 4096;
  constexpr double kRateMax = 1e13;
  const auto rate = [](double value) { return value > 0 && value < kRateMax; };
  return setting.block_bytes >= kPageBytes && setting.block_bytes % kPageBytes == 0 &&
         setting.block_bytes <= kBytesMax && setting.queue_depth > 0 && setting.queue_depth <= kDepthMax &&
         rate(setting.rates.read) && rate(setting.rates.overwrite);
}

std::string text_of_file(const std::string& path) {
  const UniqueFd fd = UniqueFd::adopt(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  std::string text(kFileBytesMax, '\0');
  const ssize_t got = fd ? ::read(fd.get(), text.data(), text.size()) : 0;
  text.resize(got > 0 ? static_cast<std::size_t>(got) : 0);
  return text;
}

// Beside it, then renamed: a reader sees the former file or this one.
void replace_file(const std::string& path, const std::string& text) {
  std::string beside = path + ".XXXXXX";
  const UniqueFd fd = UniqueFd::adopt(::mkostemp(beside.data(), O_CLOEXEC));
  if (!fd) {
    return;
  }
  const ssize_t written = ::write(fd.get(), text.data(), text.size());
  if (written != static_cast<ssize_t>(text.size()) || ::rename(beside.c_str(), path.c_str()) != 0) {
    ::unlink(beside.c_str());
  }
}

}  // namespace

std::string user_cache_folder() {
  const char* const cache = std::getenv("XDG_CACHE_HOME");
  if (cache != nullptr && cache[0] == '/') {
    return std::string(cache) + "/spillway";
  }
  const char* const home = std::getenv("HOME");
  return home != nullptr && home[0] == '/' ? std::string(home) + "/.cache/spillway" : std::string();
}

std::string TuningCache::file_of(const std::string& key) const {
  return folder_ + "/disk-" + sixteen_digits(hash_of(key));
}

void TuningCache::make_folder() const {
  std::error_code ignored;
  if (std::filesystem::create_directories(folder_, ignored)) {
    std::filesystem::permissions(folder_, std::filesystem::perms::owner_all, ignored);
  }
}

std::optional<DiskSetting> TuningCache::find(const std::string& key) const noexcept {
  if (folder_.empty()) {
    return std::nullopt;
  }
  try {
    const std::string text = text_of_file(file_of(key));
    DiskSetting setting;
    if (text.size() <= key.size() || text.compare(0, key.size(), key) != 0 ||
        std::sscanf(text.c_str() + key.size(), "\n%" SCNu64 " %u %lf %lf", &setting.block_bytes, &setting.queue_depth,
                    &setting.rates.read, &setting.rates.overwrite) != 4) {
      return std::nullopt;
    }
    return sensible(setting) && encode(key, setting) == text ? std::optional(setting) : std::nullopt;
  } catch (const std::exception&) {
    return std::nullopt;
  }
}

void TuningCache::store(const std::string& key, const DiskSetting& setting) const noexcept {
  if (folder_.empty() || !sensible(setting)) {
    return;
  }
  try {
    make_folder();
    replace_file(file_of(key), encode(key, setting));
  } catch (const std::exception&) {
    return;  // Then it is measured again.
  }
}

UniqueFd TuningCache::lock() const noexcept {
  if (folder_.empty()) {
    return {};
  }
  try {
    make_folder();
    UniqueFd fd = UniqueFd::adopt(
        ::open((folder_ + "/lock").c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600));
    const auto until = std::chrono::steady_clock::now() + kLockWait;
    while (fd && ::flock(fd.get(), LOCK_EX | LOCK_NB) != 0) {
      if (errno != EWOULDBLOCK || std::chrono::steady_clock::now() > until) {
        return {};
      }
      std::this_thread::sleep_for(kLockPause);
    }
    return fd;
  } catch (const std::exception&) {
    return {};
  }
}

}  // namespace spillway::offload
