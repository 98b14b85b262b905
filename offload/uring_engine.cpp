#include <spillway/offload/uring_engine.hpp>

#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>
#include <functional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <spillway/offload/check.hpp>
#include <spillway/offload/registered_memory.hpp>
#include <spillway/offload/unique_fd.hpp>
#include <spillway/offload/uring.hpp>

namespace spillway::offload {
namespace {

constexpr unsigned kFileSlots = 64;
constexpr std::uint64_t kWakeTag = ~std::uint64_t{0};

std::string setup_advice(int error) {
  switch (error) {
    case EPERM: {
      int disabled = 0;
      std::ifstream("/proc/sys/kernel/io_uring_disabled") >> disabled;
      return disabled != 0
                 ? "kernel.io_uring_disabled is " + std::to_string(disabled) +
                       "; `sysctl kernel.io_uring_disabled=0` allows it"
                 : "a sandbox forbids it, as containers do by default; run with a seccomp profile that allows "
                   "io_uring_setup, io_uring_enter and io_uring_register";
    }
    case ENOSYS:
      return "the kernel has no io_uring, or a sandbox hides it";
    case ENOMEM:
      return "too little memory may be locked: raise `ulimit -l`";
    case EMFILE:
    case ENFILE:
      return "no file descriptor is left: raise `ulimit -n`";
    default:
      return "the kernel may be too old";
  }
}

FailurePtr setup_failure(const char* operation, int error) {
  return std::make_shared<const IoFailure>(IoFailure{.operation = operation,
                                                     .path = "the storage engine",
                                                     .offset = 0,
                                                     .bytes = 0,
                                                     .error_number = error,
                                                     .advice = setup_advice(error)});
}

class UringEngine final : public QueuedEngine {
 public:
  UringEngine(const EngineOptions& options, AlterResult alter);
  ~UringEngine() override;

  [[nodiscard]] FileId register_file(int fd, std::string label) override;
  void release_file(FileId file) override;
  void register_memory(std::span<std::byte> memory) override;
  void unregister_memory(std::span<std::byte> memory) noexcept override;
  [[nodiscard]] EngineInfo info() const override;

 private:
  enum class State : std::uint8_t { kStarting, kRunning, kEnded };
  struct Slot {
    Chunk chunk;
    bool busy = false;
  };
  struct Command {
    const std::function<void()>& run;
    bool done = false;
  };

  void work_available() noexcept override;
  void wake() noexcept;
  /// Runs `command` on the ring's thread and blocks until it has; not at all if that thread has ended.
  void on_ring_thread(const std::function<void()>& command);

  // On the ring's thread.
  void run();
  void serve();
  bool gather();
  void run_commands(std::unique_lock<std::mutex>& lock);
  void prepare(unsigned index);
  void describe_memory();
  void completed(std::uint64_t user_data, std::int32_t result);
  void end_slot(unsigned index, TransferStep step, std::int64_t result);
  void give_up(int error);

  const AlterResult alter_;
  UniqueFd wake_fd_;
  std::uint64_t wake_value_ = 0;  // The kernel writes here.
  Uring ring_;
  std::vector<Slot> slots_;
  std::vector<unsigned> free_;
  bool wake_armed_ = false;
  std::vector<bool> fixed_files_;
  RegisteredMemory memory_;
  int fatal_error_ = 0;

  // Guarded by mutex_.
  State state_ = State::kStarting;
  FailurePtr start_failure_;
  std::condition_variable changed_;  // state_, or a command is done.
  std::vector<Command*> commands_;
  bool asleep_ = false;  // The thread waits for completions and has a slot free.
  bool stopping_ = false;
  EngineInfo info_{.name = "io_uring", .fixed_buffers = false, .fixed_files = false, .note = {}};

  std::jthread thread_;  // Last: it uses all of the above.
};

UringEngine::UringEngine(const EngineOptions& options, AlterResult alter)
    : QueuedEngine(options), alter_(std::move(alter)), slots_(this->options().queue_depth) {
  for (unsigned i = 0; i < slots_.size(); ++i) {
    free_.push_back(static_cast<unsigned>(slots_.size()) - 1 - i);
  }
  wake_fd_ = UniqueFd::adopt(::eventfd(0, EFD_CLOEXEC));
  if (!wake_fd_) {
    throw_io_failure(*setup_failure("eventfd", errno));
  }
  thread_ = std::jthread([this] { run(); });
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return state_ != State::kStarting; });
  if (start_failure_) {
    throw_io_failure(*start_failure_);
  }
}

UringEngine::~UringEngine() {
  settle();
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake();
  thread_.join();
}

FileId UringEngine::register_file(int fd, std::string label) {
  const FileId file = QueuedEngine::register_file(fd, std::move(label));
  on_ring_thread([&] {
    if (file.value < fixed_files_.size()) {
      fixed_files_[file.value] = ring_.set_file(file.value, fd) == 0;
    }
  });
  return file;
}

void UringEngine::release_file(FileId file) {
  on_ring_thread([&] {
    if (file.value < fixed_files_.size() && fixed_files_[file.value]) {
      static_cast<void>(ring_.set_file(file.value, -1));
      fixed_files_[file.value] = false;
    }
  });
  QueuedEngine::release_file(file);
}

void UringEngine::register_memory(std::span<std::byte> memory) {
  on_ring_thread([&] {
    memory_.add(ring_, memory);
    describe_memory();
  });
}

void UringEngine::unregister_memory(std::span<std::byte> memory) noexcept {
  on_ring_thread([&] {
    memory_.remove(ring_, memory);
    describe_memory();
  });
}

void UringEngine::describe_memory() {
  const std::lock_guard lock(mutex_);
  info_.fixed_buffers = memory_.all_registered();
  info_.note = memory_.note();
}

EngineInfo UringEngine::info() const {
  const std::lock_guard lock(mutex_);
  return info_;
}

void UringEngine::work_available() noexcept {
  if (asleep_) {
    asleep_ = false;
    wake();
  }
}

void UringEngine::wake() noexcept {
  const std::uint64_t one = 1;
  ssize_t written = 0;
  do {
    written = ::write(wake_fd_.get(), &one, sizeof one);
  } while (written < 0 && errno == EINTR);
}

void UringEngine::on_ring_thread(const std::function<void()>& command) {
  Command entry{command};
  std::unique_lock lock(mutex_);
  if (state_ != State::kRunning) {
    return;
  }
  commands_.push_back(&entry);
  wake();
  changed_.wait(lock, [&] { return entry.done || state_ != State::kRunning; });
}

void UringEngine::run() {
  const int error = ring_.open(static_cast<unsigned>(slots_.size()) + 1);  // One more, to be woken by.
  if (error == 0) {
    const int no_files = ring_.make_file_table(kFileSlots);
    fixed_files_.resize(no_files == 0 ? kFileSlots : 0);
    memory_.make_table(ring_, options().sharers);
  }
  {
    const std::lock_guard lock(mutex_);
    state_ = error == 0 ? State::kRunning : State::kEnded;
    start_failure_ = error == 0 ? nullptr : setup_failure("io_uring_setup", error);
    info_.fixed_files = !fixed_files_.empty();
    info_.note = memory_.note();
    changed_.notify_all();
  }
  if (error == 0) {
    serve();
  }
  ring_.close();
}

void UringEngine::serve() {
  while (fatal_error_ == 0 && gather()) {
    fatal_error_ = ring_.submit_and_wait();
    ring_.reap([this](std::uint64_t user_data, std::int32_t result) { completed(user_data, result); });
  }
  if (fatal_error_ != 0) {
    give_up(fatal_error_);
  }
}

// Prepares what can be submitted now. False: it is time to end, and nothing is in flight.
bool UringEngine::gather() {
  std::unique_lock lock(mutex_);
  run_commands(lock);
  while (!free_.empty() && try_take(lock, slots_[free_.back()].chunk)) {
    prepare(free_.back());
    free_.pop_back();
  }
  asleep_ = !free_.empty();
  if (wake_armed_) {
    return true;
  }
  if (stopping_) {
    state_ = State::kEnded;
    return false;
  }
  io_uring_sqe& submission = ring_.prepare();
  io_uring_prep_read(&submission, wake_fd_.get(), &wake_value_, sizeof wake_value_, 0);
  io_uring_sqe_set_data64(&submission, kWakeTag);
  wake_armed_ = true;
  return true;
}

void UringEngine::run_commands(std::unique_lock<std::mutex>& lock) {
  while (!commands_.empty()) {
    Command* const command = commands_.back();
    commands_.pop_back();
    lock.unlock();
    command->run();
    lock.lock();
    command->done = true;
    changed_.notify_all();
  }
}

void UringEngine::prepare(unsigned index) {
  Slot& slot = slots_[index];
  const Chunk& chunk = slot.chunk;
  const std::span<std::byte> rest = chunk.rest();
  const auto bytes = static_cast<unsigned>(rest.size());
  const bool read = chunk.operation == IoRequest::Operation::kRead;
  const bool fixed_file = chunk.file.value < fixed_files_.size() && fixed_files_[chunk.file.value];
  const int fd = fixed_file ? static_cast<int>(chunk.file.value) : chunk.fd;
  slot.busy = true;
  io_uring_sqe& submission = ring_.prepare();
  if (const auto buffer = memory_.slot_of(rest)) {
    (read ? io_uring_prep_read_fixed(&submission, fd, rest.data(), bytes, chunk.rest_offset(), *buffer)
          : io_uring_prep_write_fixed(&submission, fd, rest.data(), bytes, chunk.rest_offset(), *buffer));
  } else {
    (read ? io_uring_prep_read(&submission, fd, rest.data(), bytes, chunk.rest_offset())
          : io_uring_prep_write(&submission, fd, rest.data(), bytes, chunk.rest_offset()));
  }
  unsigned flags = fixed_file ? IOSQE_FIXED_FILE : 0;
  if (chunk.progress.idle_tries > 0) {
    flags |= IOSQE_ASYNC;  // It was told to try again: a worker of the kernel's may wait where this thread must not.
  }
  io_uring_sqe_set_flags(&submission, flags);
  io_uring_sqe_set_data64(&submission, index);
}

void UringEngine::completed(std::uint64_t user_data, std::int32_t result) {
  if (user_data == kWakeTag) {
    wake_armed_ = false;
    if (result < 0 && result != -EINTR && result != -EAGAIN) {
      fatal_error_ = -result;
    }
    return;
  }
  const auto index = static_cast<unsigned>(user_data);
  Chunk& chunk = slots_[index].chunk;
  const std::int64_t outcome =
      alter_ ? alter_(chunk.operation, chunk.fd, chunk.rest(), chunk.rest_offset(), result) : std::int64_t{result};
  const TransferStep step = advance(chunk.progress, outcome);
  if (step == TransferStep::kAgain && fatal_error_ == 0) {
    prepare(index);
  } else {
    end_slot(index, step, outcome);
  }
}

void UringEngine::end_slot(unsigned index, TransferStep step, std::int64_t result) {
  slots_[index].busy = false;
  free_.push_back(index);
  std::unique_lock lock(mutex_);
  if (step == TransferStep::kComplete) {
    end(lock, slots_[index].chunk);
  } else {
    fail(lock, slots_[index].chunk, result);
  }
}

// The ring can't be entered any more. The kernel may still read from and write to the memory of what is in flight, so
// all of that has to end before anybody is told. How it ended stays unknown.
void UringEngine::give_up(int error) {
  {
    std::unique_lock lock(mutex_);
    poison(lock, setup_failure("io_uring_enter", error));
  }
  SPILLWAY_CHECK(ring_.abandon(), "the kernel keeps memory of a ring that it does not serve");
  for (unsigned index = 0; index < slots_.size(); ++index) {
    if (slots_[index].busy) {
      end_slot(index, TransferStep::kFailed, -error);
    }
  }
  const std::lock_guard lock(mutex_);
  state_ = State::kEnded;
  for (Command* const command : commands_) {
    command->done = true;
  }
  commands_.clear();
  changed_.notify_all();
}

}  // namespace

std::unique_ptr<QueuedEngine> make_uring_engine(const EngineOptions& options, AlterResult alter) {
  return std::make_unique<UringEngine>(options, std::move(alter));
}

}  // namespace spillway::offload
