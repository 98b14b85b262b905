#include <spillway/app/training/stop_signal.hpp>

#include <csignal>

#include <array>
#include <atomic>

#include <spillway/offload/check.hpp>

namespace spillway::app {
namespace {

constexpr std::array kSignals = {SIGINT, SIGTERM, SIGHUP, SIGPIPE};

// Handlers have no argument of ours, hence file scope; lock-free, as a handler needs it.
std::atomic<int> received_signal{0};
std::atomic<int> remembered_signal{0};
std::atomic<bool> in_use{false};
std::array<struct sigaction, kSignals.size()> former_actions;
static_assert(std::atomic<int>::is_always_lock_free);

void note_signal(int signal) {
  int none = 0;
  const int reason = signal == SIGHUP ? SIGTERM : signal;
  if (received_signal.compare_exchange_strong(none, reason, std::memory_order_relaxed)) return;
  struct sigaction usual = {};
  usual.sa_handler = SIG_DFL;
  sigaction(signal, &usual, nullptr);
  static_cast<void>(std::raise(signal));  // Ends the process when this handler returns.
}

}  // namespace

StopSignal::StopSignal() {
  SPILLWAY_CHECK(!in_use.exchange(true), "one StopSignal at a time");
  received_signal.store(0);
  remembered_signal.store(0);
  struct sigaction action = {};
  action.sa_flags = SA_RESTART;
  sigemptyset(&action.sa_mask);
  for (const int signal : kSignals) sigaddset(&action.sa_mask, signal);
  for (std::size_t i = 0; i < kSignals.size(); ++i) {
    action.sa_handler = kSignals[i] == SIGPIPE ? SIG_IGN : note_signal;
    sigaction(kSignals[i], &action, &former_actions[i]);
    if (kSignals[i] == SIGHUP && former_actions[i].sa_handler == SIG_IGN) {  // nohup's wish.
      sigaction(SIGHUP, &former_actions[i], nullptr);
    }
  }
}

StopSignal::~StopSignal() {
  for (std::size_t i = 0; i < kSignals.size(); ++i) sigaction(kSignals[i], &former_actions[i], nullptr);
  in_use.store(false);
}

std::optional<int> StopSignal::received() const noexcept {
  int signal = received_signal.load(std::memory_order_relaxed);
  if (signal == 0) signal = remembered_signal.load(std::memory_order_relaxed);
  return signal == 0 ? std::nullopt : std::optional(signal);
}

// Not as if it had been received: the same signal may be on its way to this process too, and is its first one.
void StopSignal::remember(int signal) noexcept { remembered_signal.store(signal, std::memory_order_relaxed); }

}  // namespace spillway::app
