#include <spillway/distributed/gloo_exchange.hpp>

#include <algorithm>
#include <utility>

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

#include <spillway/distributed/meeting.hpp>

namespace spillway::distributed {
namespace {

// How long a rank that failed waits for another's farewell, and for its own to be taken: the receives for them are
// posted from the start, so that only a peer that hangs makes it wait.
constexpr std::chrono::milliseconds kFarewellPatience{1000};
constexpr int kFarewellTag = 0;

// A farewell is a row of int64: kind, operation, call number, then 1 for each rank that is a culprit.
struct Farewell {
  enum Field : std::int64_t { kKind, kOperation, kCallNumber, kCulprits };
};

at::Tensor empty_farewell(int world_size) { return at::zeros({Farewell::kCulprits + world_size}, at::kLong); }

at::Tensor encode(const GroupFailure& failure, int world_size) {
  at::Tensor row = empty_farewell(world_size);
  auto* const fields = row.mutable_data_ptr<std::int64_t>();
  fields[Farewell::kKind] = static_cast<std::int64_t>(failure.kind);
  fields[Farewell::kOperation] = static_cast<std::int64_t>(failure.operation);
  fields[Farewell::kCallNumber] = static_cast<std::int64_t>(failure.call_number);
  for (const int culprit : failure.culprits) {
    fields[Farewell::kCulprits + culprit] = 1;
  }
  return row;
}

GroupFailure decode(const at::Tensor& row, int reporter) {
  const auto* const fields = row.const_data_ptr<std::int64_t>();
  GroupFailure failure{static_cast<GroupFailure::Kind>(fields[Farewell::kKind]),
                       static_cast<Operation>(fields[Farewell::kOperation]),
                       static_cast<std::uint64_t>(fields[Farewell::kCallNumber]),
                       {},
                       reporter};
  for (std::int64_t rank = 0; rank < row.numel() - Farewell::kCulprits; ++rank) {
    if (fields[Farewell::kCulprits + rank] != 0) {
      failure.culprits.push_back(static_cast<int>(rank));
    }
  }
  return failure;
}

bool is_loopback(const std::string& address) {
  return address == "localhost" || address == "::1" || address.starts_with("127.");
}

c10::intrusive_ptr<c10d::ProcessGroupGloo::Options> make_options(const std::string& master_addr,
                                                                 std::chrono::milliseconds timeout) {
  if (!is_loopback(master_addr)) {
    return c10d::ProcessGroupGloo::Options::create_default(timeout);
  }
  auto options = c10d::ProcessGroupGloo::Options::create(timeout);
  options->devices.push_back(c10d::ProcessGroupGloo::createDeviceForHostname(master_addr));
  return options;
}

bool ends(c10d::Work& work, std::chrono::milliseconds timeout) {
  try {
    return work.wait(timeout);
  } catch (const std::exception&) {
    return false;
  }
}

}  // namespace

GlooExchange::GlooExchange(const Meeting& meeting)
    : self_{meeting.environment().rank, meeting.environment().world_size}, store_(meeting.attend()) {
  try {
    connect(meeting.environment().master_addr, meeting.remaining());
  } catch (const std::exception& cause) {
    meeting.fail("the ranks could not connect to each other", cause);
  }
}

void GlooExchange::connect(const std::string& master_addr, std::chrono::milliseconds timeout) {
  const auto options = make_options(master_addr, timeout);
  options->threads = 1;  // They run c10d's own collectives, which are not used here.
  const auto make_mesh = [&](const char* name) {
    return c10::make_intrusive<c10d::ProcessGroupGloo>(c10::make_intrusive<c10d::PrefixStore>(name, store_), self_.rank,
                                                       self_.world_size, options);
  };
  data_ = make_mesh("data");
  control_ = make_mesh("control");
  for (int peer = 0; peer < self_.world_size; ++peer) {
    if (peer != self_.rank) {
      farewells_.push_back(receive(*control_, empty_farewell(self_.world_size), peer, kFarewellTag));
    }
  }
}

GlooExchange::~GlooExchange() = default;

GlooExchange::Transfer GlooExchange::send(c10d::Backend& mesh, const at::Tensor& piece, int peer, int tag) const {
  std::vector<at::Tensor> pieces{piece};
  return {peer, piece, mesh.send(pieces, peer, tag)};
}

GlooExchange::Transfer GlooExchange::receive(c10d::Backend& mesh, const at::Tensor& piece, int peer, int tag) const {
  std::vector<at::Tensor> pieces{piece};
  return {peer, piece, mesh.recv(pieces, peer, tag)};
}

void GlooExchange::exchange(std::span<const at::Tensor> outgoing, std::span<const at::Tensor> incoming,
                            const Call& call) {
  const int tag = static_cast<int>(++exchanges_ % (1U << 30U));
  std::vector<Transfer> transfers;
  std::size_t ended = 0;
  int peer = 0;
  const auto moves = [&](const at::Tensor& piece) {
    return peer != self_.rank && piece.defined() && piece.numel() > 0;
  };
  try {
    for (peer = 0; peer < self_.world_size; ++peer) {
      if (const at::Tensor& piece = incoming[static_cast<std::size_t>(peer)]; moves(piece)) {
        transfers.push_back(receive(*data_, piece, peer, tag));
      }
    }
    for (peer = 0; peer < self_.world_size; ++peer) {
      if (const at::Tensor& piece = outgoing[static_cast<std::size_t>(peer)]; moves(piece)) {
        transfers.push_back(send(*data_, piece, peer, tag));
      }
    }
    for (; ended < transfers.size(); ++ended) {
      peer = transfers[ended].peer;
      transfers[ended].work->wait(call.remaining());
    }
  } catch (const std::exception&) {
    // Gloo's exceptions carry text only. Which rank it was is known here, and why is found out.
    const std::span<Transfer> waiting = std::span(transfers).subspan(std::min(ended + 1, transfers.size()));
    const GroupFailure failure = explain(call, peer, waiting);
    say_farewell(failure);
    raise(failure, self_, call.timeout);
  }
}

GroupFailure GlooExchange::explain(const Call& call, int failed_peer, std::span<Transfer> waiting) {
  GroupFailure failure{GroupFailure::Kind::PeerLost, call.operation, call.number, {failed_peer}, self_.rank};
  if (std::chrono::steady_clock::now() >= call.deadline) {
    failure.kind = GroupFailure::Kind::TimedOut;
    for (const Transfer& transfer : waiting) {
      if (!ends(*transfer.work, std::chrono::milliseconds(1))) {
        failure.culprits.push_back(transfer.peer);
      }
    }
    std::sort(failure.culprits.begin(), failure.culprits.end());
    failure.culprits.erase(std::unique(failure.culprits.begin(), failure.culprits.end()), failure.culprits.end());
    return failure;
  }
  const auto farewell = std::find_if(farewells_.begin(), farewells_.end(),
                                     [&](const Transfer& transfer) { return transfer.peer == failed_peer; });
  return ends(*farewell->work, kFarewellPatience) ? decode(farewell->piece, failed_peer) : failure;
}

void GlooExchange::say_farewell(const GroupFailure& failure) {
  const at::Tensor row = encode(failure, self_.world_size);
  std::vector<Transfer> sends;
  for (const Transfer& farewell : farewells_) {
    try {
      sends.push_back(send(*control_, row, farewell.peer, kFarewellTag));
    } catch (const std::exception&) {
      // That rank is gone, and needs no farewell.
    }
  }
  for (const Transfer& transfer : sends) {
    ends(*transfer.work, kFarewellPatience);
  }
}

}  // namespace spillway::distributed
