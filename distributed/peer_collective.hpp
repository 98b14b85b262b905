#pragma once

#include <chrono>
#include <cstdint>
#include <exception>
#include <memory>
#include <span>
#include <vector>

#include <spillway/distributed/collective.hpp>
#include <spillway/distributed/peer_exchange.hpp>

namespace spillway::distributed {

/// The collectives, on any transport. Each call first exchanges a header, in which the ranks show that they make the
/// same call, and then pieces between all pairs: a sum is cut into one piece a rank, whose owner adds what it gets in
/// rank order and hands the result round. That moves no more bytes than a ring does, and fixes the order of addition.
class PeerCollective final : public Collective {
 public:
  /// @param timeout  deadline of every call, counted from its start.
  PeerCollective(Member self, std::unique_ptr<PeerExchange> exchange, std::chrono::milliseconds timeout);
  ~PeerCollective() override;

  [[nodiscard]] int rank() const noexcept override { return self_.rank; }
  [[nodiscard]] int world_size() const noexcept override { return self_.world_size; }
  void all_reduce(at::Tensor& tensor, Reduction reduction) override;
  [[nodiscard]] std::vector<at::Tensor> all_gather(const at::Tensor& tensor) override;
  void broadcast(at::Tensor& tensor, int root) override;
  [[nodiscard]] std::vector<at::Tensor> all_to_all(std::span<const at::Tensor> outgoing) override;
  void barrier() override;

 private:
  /// Runs `body(call)` as the next call of the group; keeps what it throws for the calls after it.
  template <typename Body>
  void run(Operation operation, Body body);
  /// Shows mine[r] to rank r and returns what the ranks show this one, in rank order. @throws Error where they make
  /// different calls.
  std::vector<at::Tensor> agree(const Call& call, const std::vector<at::Tensor>& mine);
  /// The same, with one header for all ranks.
  std::vector<at::Tensor> agree(const Call& call, const at::Tensor& mine);
  /// One tensor for each rank, all undefined: exchange() moves what is put in.
  [[nodiscard]] std::vector<at::Tensor> nothing() const;

  Member self_;
  std::unique_ptr<PeerExchange> exchange_;
  std::chrono::milliseconds timeout_;
  std::uint64_t calls_ = 0;
  std::exception_ptr failure_;
};

}  // namespace spillway::distributed
