#include <spillway/offload/engine_factory.hpp>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <utility>

#include <spillway/offload/aligned_block.hpp>
#include <spillway/offload/error.hpp>
#include <spillway/offload/swap_file.hpp>
#include <spillway/offload/thread_engine.hpp>
#ifdef SPILLWAY_WITH_URING
#include <spillway/offload/uring_engine.hpp>
#endif

namespace spillway::offload {
namespace {

constexpr std::chrono::milliseconds kProbeDeadline{30'000};
constexpr char kInstead[] = "; set aio.engine to auto or threads to do without";

std::unique_ptr<QueuedEngine> make_uring([[maybe_unused]] const EngineOptions& options) {
#ifdef SPILLWAY_WITH_URING
  return make_uring_engine(options);
#else
  throw IoError({.operation = "io_uring_setup",
                 .path = "the storage engine",
                 .offset = 0,
                 .bytes = 0,
                 .error_number = ENOSYS,
                 .advice = "this build has no io_uring (SPILLWAY_URING is off)"});
#endif
}

// Writes, reads back and compares: a ring that can be made may still refuse to work.
void probe(QueuedEngine& engine, SwapFile& file) {
  const AlignedBlock memory(2 * kPageBytes);
  const std::span<std::byte> written = memory.bytes().first(kPageBytes);
  const std::span<std::byte> read = memory.bytes().last(kPageBytes);
  for (std::size_t i = 0; i < written.size(); ++i) {
    written[i] = static_cast<std::byte>(i * 31 + i / 251);
  }
  const std::string label = "a probe file in " + file.folder();
  const FileId id = engine.register_file(file.fd(), label);
  engine.register_memory(memory.bytes());
  const Ticket write =
      engine.submit({.operation = IoRequest::Operation::kWrite, .file = id, .offset = 0, .buffer = written});
  engine.submit({.operation = IoRequest::Operation::kRead, .file = id, .offset = 0, .buffer = read}, {&write, 1})
      .wait(kProbeDeadline);
  engine.unregister_memory(memory.bytes());
  engine.release_file(id);
  if (!std::equal(written.begin(), written.end(), read.begin())) {
    throw IoError({.operation = "read",
                   .path = label,
                   .offset = 0,
                   .bytes = kPageBytes,
                   .error_number = 0,
                   .advice = "what came back is not what was written; the disk or its driver is at fault"});
  }
}

std::unique_ptr<QueuedEngine> make_threads(const EngineOptions& options, SwapFile& file) {
  auto engine = std::make_unique<ThreadEngine>(options);
  probe(*engine, file);
  return engine;
}

}  // namespace

std::unique_ptr<StorageEngine> make_engine(EngineChoice choice, const EngineOptions& options, const std::string& folder,
                                           const LogSink& log) {
  SwapFile file(folder, [](const std::string&) {});  // The swap file proper will say the same about the folder.
  file.grow(kPageBytes);
  if (choice == EngineChoice::kThreads) {
    auto engine = make_threads(options, file);
    log("storage engine for " + folder + ": thread pool, as aio.engine asks for");
    return engine;
  }
  try {
    auto engine = make_uring(options);
    probe(*engine, file);
    log("storage engine for " + folder + ": io_uring, which passed its trial there");
    return engine;
  } catch (const IoError& error) {
    if (choice == EngineChoice::kIoUring) {
      IoFailure failure = error.failure();
      failure.advice += kInstead;
      throw IoError(std::move(failure));
    }
    auto engine = make_threads(options, file);
    log("storage engine for " + folder +
        ": thread pool (same results, more processor time), since io_uring does not "
        "work here: " +
        error.what());
    return engine;
  }
}

}  // namespace spillway::offload
