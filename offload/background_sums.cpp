#include <spillway/offload/background_sums.hpp>

#include <utility>

#include <spillway/offload/check.hpp>
#include <spillway/offload/checksum.hpp>
#include <spillway/offload/request_state.hpp>

namespace spillway::offload {

BlockSum::BlockSum(std::span<const std::byte> contents, std::uint64_t seed)
    : contents_(contents),
      seed_(seed),
      ended_(std::make_shared<RequestState>(IoFailure{.operation = "checksum",
                                                      .path = "memory",
                                                      .offset = 0,
                                                      .bytes = contents.size(),
                                                      .error_number = 0,
                                                      .advice = {}})) {}

void BlockSum::make() {
  if (!begun_.exchange(true)) {
    value_ = xxh3_64(contents_, seed_);
    ended_.state()->finish(nullptr);
  }
}

void BlockSum::drop() {
  if (!begun_.exchange(true)) {
    ended_.state()->finish(nullptr);
  }
}

std::uint64_t BlockSum::value() const {
  SPILLWAY_CHECK(ended_.done(), "a checksum is asked for before it has been made");
  return value_;
}

BackgroundSums::BackgroundSums(std::unique_ptr<CopyStream> thread, Trace* trace)
    : trace_(trace), thread_(std::move(thread)) {}

void BackgroundSums::add(SumPtr sum) { waiting_ < kWaitingMax ? push(std::move(sum)) : sum->make(); }

void BackgroundSums::add_after(const Ticket& transfer, SumPtr sum) {
  transfer.state()->when_done(
      [this, sum = std::move(sum)](const FailurePtr& failure) { failure ? sum->drop() : push(sum); });
}

void BackgroundSums::push(SumPtr sum) {
  ++waiting_;
  thread_->run([this, sum = std::move(sum)] {
    --waiting_;
    const TraceSpan span(trace_, Trace::Track::kChecksums, "checksum");
    sum->make();
  });
}

}  // namespace spillway::offload
