#include <spillway/offload/storage_engine.hpp>

#include <spillway/offload/check.hpp>
#include <spillway/offload/request_state.hpp>

namespace spillway::offload {

bool Ticket::done() const noexcept {
  SPILLWAY_CHECK(state_ != nullptr, "an empty ticket refers to no transfer");
  return state_->done();
}

void Ticket::wait(std::chrono::milliseconds deadline) const {
  SPILLWAY_CHECK(state_ != nullptr, "an empty ticket refers to no transfer");
  state_->wait(deadline);
}

void Ticket::settle() const noexcept {
  SPILLWAY_CHECK(state_ != nullptr, "an empty ticket refers to no transfer");
  state_->settle();
}

}  // namespace spillway::offload
