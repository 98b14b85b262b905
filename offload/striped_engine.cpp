#include <spillway/offload/striped_engine.hpp>

#include <algorithm>
#include <unordered_set>
#include <utility>

#include <spillway/offload/check.hpp>
#include <spillway/offload/error.hpp>
#include <spillway/offload/request_state.hpp>

namespace spillway::offload {
namespace {

IoFailure subject_of(const IoRequest& request, std::string path) {
  return {.operation = std::string(to_string(request.operation)),
          .path = std::move(path),
          .offset = request.offset,
          .bytes = request.buffer.size(),
          .error_number = 0,
          .advice = {}};
}

// Whether a transfer failed because one that it comes after did. All of them have ended.
bool inherited(const std::vector<Ticket>& after, const FailurePtr& failure) {
  return std::any_of(after.begin(), after.end(), [&](const Ticket& ticket) {
    bool same = false;
    if (ticket) {
      ticket.state()->when_done([&](const FailurePtr& other) { same = other == failure; });
    }
    return same;
  });
}

std::string joined_labels(const std::vector<std::string>& labels) {
  std::string text;
  for (const std::string& label : labels) {
    text += (text.empty() ? "" : ", ") + label;
  }
  return text;
}

}  // namespace

StripedEngine::StripedEngine(std::vector<std::unique_ptr<StorageEngine>> paths, StripeMap map)
    : map_(std::move(map)), paths_(std::move(paths)) {
  SPILLWAY_CHECK(paths_.size() == map_.paths(), "each path of the map has an engine");
}

StripedEngine::~StripedEngine() {
  std::unique_lock lock(mutex_);
  idle_.wait(lock, [this] { return open_.empty(); });
}

FileId StripedEngine::register_parts(std::vector<Part> parts) {
  SPILLWAY_CHECK(parts.size() == paths_.size(), "each path has a part of the file");
  File file;
  for (std::size_t path = 0; path < paths_.size(); ++path) {
    file.ids.push_back(paths_[path]->register_file(parts[path].fd, parts[path].label));
    file.labels.push_back(std::move(parts[path].label));
  }
  const std::lock_guard lock(mutex_);
  files_.push_back(std::move(file));
  return {static_cast<std::uint32_t>(files_.size() - 1)};
}

FileId StripedEngine::register_file(int fd, std::string label) {
  File file;
  for (const auto& engine : paths_) {
    file.ids.push_back(engine->register_file(fd, label));
  }
  file.labels.push_back(std::move(label));
  const std::lock_guard lock(mutex_);
  files_.push_back(std::move(file));
  return {static_cast<std::uint32_t>(files_.size() - 1)};
}

void StripedEngine::register_memory(std::span<std::byte> memory) {
  for (const auto& engine : paths_) {
    engine->register_memory(memory);
  }
}

void StripedEngine::unregister_memory(std::span<std::byte> memory) noexcept {
  for (const auto& engine : paths_) {
    engine->unregister_memory(memory);
  }
}

Ticket StripedEngine::submit(const IoRequest& request, std::span<const Ticket> after) {
  const SplitPtr split = open(request, after);
  for (Piece& piece : split->pieces) {
    start(split, piece);
  }
  end_if_last(split, std::unique_lock(mutex_));
  return Ticket(split->state);
}

StripedEngine::SplitPtr StripedEngine::open(const IoRequest& request, std::span<const Ticket> after) {
  const auto split = std::make_shared<Split>();
  const std::lock_guard lock(mutex_);
  if (failure_) {
    throw_io_failure(*failure_);
  }
  SPILLWAY_CHECK(request.file.value < files_.size(), "the file is not registered with this engine");
  const File& file = files_[request.file.value];
  split->pieces = cut(request, file);
  split->unended = split->pieces.size() + 1;
  split->after.assign(after.begin(), after.end());
  // Asked for when a wait has lasted too long: a piece that has not ended says which path is slow.
  const auto pending = [weak = std::weak_ptr(split), labels = file.labels,
                        parts = file.in_parts(map_)](IoFailure subject) {
    const SplitPtr waiting = weak.lock();
    for (std::size_t i = 0; parts && waiting && i < waiting->pieces.size(); ++i) {
      const Piece& piece = waiting->pieces[i];
      if (piece.ticket && !piece.ticket.done()) {
        return subject_of(piece.io, labels[piece.path]);
      }
    }
    return subject;
  };
  split->state = std::make_shared<RequestState>(subject_of(request, joined_labels(file.labels)), pending);
  open_.emplace(split->state.get(), split);
  return split;
}

std::vector<StripedEngine::Piece> StripedEngine::cut(const IoRequest& request, const File& file) const {
  std::vector<Piece> pieces;
  for (std::uint64_t begin = 0; begin < request.buffer.size();) {
    const StripeMap::Place place = map_.place(request.offset + begin);
    const std::uint64_t bytes = std::min(place.bytes, request.buffer.size() - begin);
    IoRequest io = request;
    io.file = file.ids[place.path];
    io.offset = file.in_parts(map_) ? place.offset : request.offset + begin;
    io.buffer = request.buffer.subspan(begin, bytes);
    pieces.push_back({place.path, io, {}});
    begin += bytes;
  }
  SPILLWAY_CHECK(!pieces.empty(), "a transfer moves at least one page");
  return pieces;
}

void StripedEngine::start(const SplitPtr& split, Piece& piece) {
  try {
    piece.ticket = paths_[piece.path]->submit(piece.io, split->after);
  } catch (const IoError& error) {  // The engine of that path is poisoned.
    piece_ended(split, piece.path, std::make_shared<const IoFailure>(error.failure()));
    return;
  }
  piece.ticket.state()->when_done(
      [this, split, path = piece.path](const FailurePtr& failure) { piece_ended(split, path, failure); });
}

void StripedEngine::piece_ended(const SplitPtr& split, std::size_t path, const FailurePtr& failure) {
  const bool poisoned = failure && !inherited(split->after, failure);
  std::unique_lock lock(mutex_);
  if (poisoned && !failure_) {
    failure_ = in_the_whole(path, failure);
  }
  if (failure && !split->failure) {
    split->failure = poisoned ? failure_ : failure;
  }
  end_if_last(split, std::move(lock));
}

void StripedEngine::end_if_last(const SplitPtr& split, std::unique_lock<std::mutex> lock) {
  if (--split->unended > 0) {
    return;
  }
  // Nothing that ends after the first failure is reported as good.
  const FailurePtr failure = split->failure ? split->failure : failure_;
  lock.unlock();
  split->state->finish(failure);
  lock.lock();
  open_.erase(split->state.get());
  if (open_.empty()) {
    idle_.notify_all();
  }
}

// With the mutex held.
FailurePtr StripedEngine::in_the_whole(std::size_t path, const FailurePtr& failure) const {
  for (const File& file : files_) {
    if (file.in_parts(map_) && file.labels[path] == failure->path) {
      IoFailure whole = *failure;
      whole.path = "swap space (at offset " + std::to_string(failure->offset) + " of the " + failure->path + ")";
      whole.offset = map_.logical_offset(path, failure->offset);
      return std::make_shared<const IoFailure>(std::move(whole));
    }
  }
  return failure;
}

void StripedEngine::expedite(const Ticket& ticket) {
  std::unordered_set<const RequestState*> seen;
  std::vector<Ticket> pending{ticket};
  while (!pending.empty()) {
    SplitPtr split;
    {
      const std::lock_guard lock(mutex_);
      const RequestState* const state = pending.back().state().get();
      const auto found = open_.find(state);
      split = found != open_.end() && seen.insert(state).second ? found->second : nullptr;
    }
    pending.pop_back();
    if (split == nullptr) {
      continue;
    }
    pending.insert(pending.end(), split->after.begin(), split->after.end());
    for (const Piece& piece : split->pieces) {
      if (piece.ticket) {
        paths_[piece.path]->expedite(piece.ticket);
      }
    }
  }
}

void StripedEngine::drain(std::chrono::milliseconds deadline) {
  std::unique_lock lock(mutex_);
  if (!idle_.wait_for(lock, deadline, [this] { return open_.empty(); })) {
    throw TimedOut(std::to_string(open_.size()) + " transfers have not ended within " +
                   std::to_string(deadline.count()) +
                   " ms and are still running; check the disks for faults or overload");
  }
  if (failure_) {
    throw_io_failure(*failure_);
  }
}

EngineInfo StripedEngine::info() const {
  EngineInfo whole = paths_.front()->info();
  for (std::size_t path = 1; path < paths_.size(); ++path) {
    const EngineInfo info = paths_[path]->info();
    if (whole.name.find(info.name) == std::string::npos) {
      whole.name += " and " + info.name;
    }
    whole.fixed_buffers = whole.fixed_buffers && info.fixed_buffers;
    whole.fixed_files = whole.fixed_files && info.fixed_files;
    whole.note = whole.note.empty() ? info.note : whole.note;
  }
  return whole;
}

}  // namespace spillway::offload
