#include <spillway/offload/simulated_device.hpp>

#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <mutex>
#include <system_error>
#include <utility>

#include <spillway/offload/access_ledger.hpp>
#include <spillway/offload/copy_room.hpp>
#include <spillway/offload/error.hpp>
#include <spillway/offload/tier.hpp>
#include <spillway/offload/unique_fd.hpp>

namespace spillway::offload {

/// The same pages twice: once where nobody may touch them, for the pointers that are handed out, and once for the
/// device's own use.
class SimulatedDevice::Memory {
 public:
  explicit Memory(std::uint64_t bytes) : bytes_(page_ceil(bytes)) {
    const UniqueFd file = UniqueFd::adopt(::memfd_create("simulated device", MFD_CLOEXEC));
    if (file.get() < 0 || ::ftruncate(file.get(), static_cast<off_t>(bytes_)) != 0) {
      fail();
    }
    outside_ = map(PROT_NONE, file.get());
    try {
      inside_ = map(PROT_READ | PROT_WRITE, file.get());
    } catch (...) {
      ::munmap(outside_, bytes_);
      throw;
    }
  }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  ~Memory() {
    ::munmap(inside_, bytes_);
    ::munmap(outside_, bytes_);
  }

  [[nodiscard]] std::span<std::byte> allocate(std::uint64_t bytes) {
    const std::lock_guard lock(mutex_);
    const std::uint64_t padded = page_ceil(bytes);
    if (padded > bytes_ - used_) {
      throw Error("the simulated device has " + std::to_string(bytes_ - used_) + " of its " + std::to_string(bytes_) +
                  " bytes left, and " + std::to_string(bytes) + " are wanted; make it larger");
    }
    used_ += padded;
    return {outside_ + used_ - padded, bytes};
  }

  /// Where the device itself finds bytes: its own at their second place, all others where they are.
  template <typename Byte>
  [[nodiscard]] std::span<Byte> inside(std::span<Byte> bytes) const {
    const auto first = reinterpret_cast<std::uintptr_t>(outside_);
    const auto wanted = reinterpret_cast<std::uintptr_t>(bytes.data());
    return wanted >= first && wanted < first + bytes_ ? std::span<Byte>(inside_ + (wanted - first), bytes.size())
                                                      : bytes;
  }

 private:
  [[noreturn]] static void fail() {
    throw Error("there is no memory for a simulated device: " + std::generic_category().message(errno));
  }
  [[nodiscard]] std::byte* map(int protection, int file) const {
    void* const mapped = ::mmap(nullptr, bytes_, protection, MAP_SHARED, file, 0);
    if (mapped == MAP_FAILED) {
      fail();
    }
    return static_cast<std::byte*>(mapped);
  }

  const std::uint64_t bytes_;
  std::byte* outside_ = nullptr;
  std::byte* inside_ = nullptr;
  std::mutex mutex_;
  std::uint64_t used_ = 0;
};

/// Shared by the device, its streams, their tasks and events, whichever lives longest.
struct SimulatedDevice::Shared {
  Shared(std::uint64_t bytes, unsigned seed) : memory(bytes), first_seed(seed) {}
  Memory memory;
  AccessLedger ledger;
  const unsigned first_seed;
};

class SimulatedDevice::Recorded final : public Event {
 public:
  Recorded(std::shared_ptr<Shared> shared, std::shared_ptr<Event> event, AccessLedger::Clock clock)
      : shared_(std::move(shared)), event_(std::move(event)), clock_(std::move(clock)) {}

  [[nodiscard]] bool done() const override {
    return seen([this] { return event_->done(); });
  }
  void synchronize() const override {
    seen([this] {
      event_->synchronize();
      return true;
    });
  }

 private:
  friend class SimulatedDevice::Stream;
  // An event that throws is done, too.
  template <typename Look>
  bool seen(Look look) const {
    bool done = false;
    try {
      done = look();
    } catch (...) {
      shared_->ledger.host_saw(clock_);
      throw;
    }
    if (done) {
      shared_->ledger.host_saw(clock_);
    }
    return done;
  }

  const std::shared_ptr<Shared> shared_;
  const std::shared_ptr<Event> event_;
  const AccessLedger::Clock clock_;
};

class SimulatedDevice::Stream final : public CopyStream {
 public:
  explicit Stream(std::shared_ptr<Shared> shared)
      : shared_(std::move(shared)),
        number_(shared_->ledger.add_stream()),
        inner_(make_host_stream(shared_->first_seed == 0 ? 0 : shared_->first_seed * 64 + number_)) {}

  void copy(std::span<std::byte> destination, std::span<const std::byte> source) override {
    require_room(destination, source);
    if (source.empty()) {
      return;
    }
    const std::span<std::byte> to = shared_->memory.inside(destination.first(source.size()));
    const std::span<const std::byte> from = shared_->memory.inside(source);
    queue("a copy", {{from, false}, {to, true}}, true,
          [to, from] { std::memcpy(to.data(), from.data(), from.size()); });
  }

  void run(std::function<void()> task) override { queue("a host task", {}, false, std::move(task)); }

  [[nodiscard]] std::shared_ptr<Event> record() override {
    const std::lock_guard lock(mutex_);
    return std::make_shared<Recorded>(shared_, inner_->record(), shared_->ledger.recorded(number_));
  }

  void wait(const std::shared_ptr<Event>& event) override {
    const auto recorded = std::dynamic_pointer_cast<Recorded>(event);
    if (recorded == nullptr) {
      throw Error("a stream of a simulated device can only wait for an event of such a stream");
    }
    const std::lock_guard lock(mutex_);
    inner_->wait(recorded->event_);
    if (recorded->shared_ == shared_) {
      shared_->ledger.stream_waits(number_, recorded->clock_);
    }
  }

  void queue(std::string name, const std::vector<AccessLedger::Range>& ranges, bool declared,
             std::function<void()> work) {
    const std::lock_guard lock(mutex_);
    auto task = shared_->ledger.queue(number_, std::move(name), ranges, declared);
    inner_->run([shared = shared_, task = std::move(task), work = std::move(work)] {
      shared->ledger.starts(task);
      const Ending ending{shared->ledger, task};
      work();
    });
  }

  [[nodiscard]] bool belongs_to(const std::shared_ptr<Shared>& shared) const { return shared_ == shared; }

 private:
  struct Ending {
    AccessLedger& ledger;
    const AccessLedger::Task& task;
    ~Ending() { ledger.ended(task); }
  };

  const std::shared_ptr<Shared> shared_;
  const std::uint32_t number_;
  std::mutex mutex_;  // The account and the stream have its tasks in the same order.
  const std::unique_ptr<CopyStream> inner_;
};

SimulatedDevice::SimulatedDevice(std::uint64_t memory_bytes, unsigned seed)
    : shared_(std::make_shared<Shared>(memory_bytes, seed)) {}

SimulatedDevice::~SimulatedDevice() = default;

std::span<std::byte> SimulatedDevice::allocate(std::uint64_t bytes) { return shared_->memory.allocate(bytes); }

std::span<std::byte> SimulatedDevice::kernel_view(std::span<std::byte> device_memory) const {
  return shared_->memory.inside(device_memory);
}

std::unique_ptr<CopyStream> SimulatedDevice::make_stream() { return std::make_unique<Stream>(shared_); }

void SimulatedDevice::launch(CopyStream& stream, std::vector<std::span<const std::byte>> reads,
                             std::vector<std::span<std::byte>> writes, std::function<void()> kernel) {
  auto* const own = dynamic_cast<Stream*>(&stream);
  if (own == nullptr || !own->belongs_to(shared_)) {
    throw Error("a kernel runs on a stream of its own device");
  }
  std::vector<AccessLedger::Range> ranges;
  for (const auto& bytes : reads) {
    ranges.push_back({shared_->memory.inside(bytes), false});
  }
  for (const auto& bytes : writes) {
    ranges.push_back({shared_->memory.inside(bytes), true});
  }
  own->queue("a kernel", ranges, true, std::move(kernel));
}

void SimulatedDevice::host_reads(std::span<const std::byte> host_memory) {
  shared_->ledger.host_touches({host_memory, false});
}

void SimulatedDevice::host_writes(std::span<const std::byte> host_memory) {
  shared_->ledger.host_touches({host_memory, true});
}

std::vector<std::string> SimulatedDevice::misuses() const { return shared_->ledger.misuses(); }

}  // namespace spillway::offload
