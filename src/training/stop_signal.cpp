#include <spillway/app/training/stop_signal.hpp>

#include <csignal>

#include <array>
#include <atomic>

#include <spillway/offload/check.hpp>

namespace spillway::app {
namespace {

constexpr std::array kSignals = {SIGINT, SIGTERM};

// Handlers have no argument of ours, hence file scope; lock-free, as a handler needs it.
std::atomic<int> received_signal{0};
std::atomic<bool> in_use{false};
std::array<struct sigaction, kSignals.size()> former_actions;
static_assert(std::atomic<int>::is_always_lock_free);

void note_signal(int signal) { received_signal.store(signal, std::memory_order_relaxed); }

}  // namespace

StopSignal::StopSignal() {
  SPILLWAY_CHECK(!in_use.exchange(true), "one StopSignal at a time");
  received_signal.store(0);
  struct sigaction action = {};
  action.sa_handler = note_signal;
  action.sa_flags = SA_RESTART | static_cast<int>(SA_RESETHAND);
  sigemptyset(&action.sa_mask);
  for (std::size_t i = 0; i < kSignals.size(); ++i) sigaction(kSignals[i], &action, &former_actions[i]);
}

StopSignal::~StopSignal() {
  for (std::size_t i = 0; i < kSignals.size(); ++i) sigaction(kSignals[i], &former_actions[i], nullptr);
  in_use.store(false);
}

std::optional<int> StopSignal::received() const noexcept {
  const int signal = received_signal.load(std::memory_order_relaxed);
  return signal == 0 ? std::nullopt : std::optional(signal);
}

void StopSignal::remember(int signal) noexcept { note_signal(signal); }

}  // namespace spillway::app
