#include <spillway/distributed/peer_collective.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <string>
#include <utility>

#include <ATen/OpMathType.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <c10/core/ScalarType.h>

#include <spillway/distributed/arguments.hpp>
#include <spillway/offload/check.hpp>
#include <spillway/offload/error.hpp>

namespace spillway::distributed {
namespace {

// A header is a row of int64: what is asked for, and of which tensor. `kArgument` is the reduction or the root.
enum Field : std::size_t { kOperation, kArgument, kDtype, kDimensions, kSizes };
constexpr std::size_t kSizesMax = 8;
constexpr std::size_t kFields = kSizes + kSizesMax;
using Header = std::array<std::int64_t, kFields>;

at::Tensor make_header(Operation operation, std::int64_t argument, const at::Tensor& tensor) {
  at::Tensor header = at::empty({static_cast<std::int64_t>(kFields)}, at::kLong);
  std::int64_t* const fields = header.mutable_data_ptr<std::int64_t>();
  std::fill_n(fields, kFields, std::int64_t{0});
  fields[kOperation] = static_cast<std::int64_t>(operation);
  fields[kArgument] = argument;
  if (tensor.defined()) {
    fields[kDtype] = static_cast<std::int64_t>(tensor.scalar_type());
    fields[kDimensions] = tensor.dim();
    std::fill_n(fields + kSizes, kSizesMax, std::int64_t{1});
    for (std::int64_t i = 0; i < tensor.dim(); ++i) {
      fields[kSizes + std::min(static_cast<std::size_t>(i), kSizesMax - 1)] *= tensor.size(i);
    }
  }
  return header;
}

Header read(const at::Tensor& header) {
  Header fields{};
  std::copy_n(header.const_data_ptr<std::int64_t>(), kFields, fields.begin());
  return fields;
}

/// Whether the ranks with these headers can make the call together: only the first size of all_gather and all_to_all
/// may differ.
bool same_call(Header a, Header b) {
  const auto operation = static_cast<Operation>(a[kOperation]);
  if ((operation == Operation::AllGather && a[kDimensions] > 0) || operation == Operation::AllToAll) {
    a[kSizes] = b[kSizes] = 0;
  }
  return a == b;
}

std::string describe(const Header& header) {
  const auto operation = static_cast<Operation>(header[kOperation]);
  std::string text = name_of(operation);
  if (operation == Operation::Barrier) {
    return text;
  }
  if (operation == Operation::AllReduce) {
    text += header[kArgument] == static_cast<std::int64_t>(Reduction::Mean) ? " (mean)" : " (sum)";
  } else if (operation == Operation::Broadcast) {
    text += " from rank " + std::to_string(header[kArgument]);
  }
  text += std::string(" of ") + c10::toString(static_cast<c10::ScalarType>(header[kDtype]));
  if (operation == Operation::AllToAll) {
    return text;
  }
  text += " [";
  const auto sizes = std::min(static_cast<std::size_t>(header[kDimensions]), kSizesMax);
  for (std::size_t i = 0; i < sizes; ++i) {
    text += (i == 0 ? "" : ", ") + std::to_string(header[kSizes + i]);
  }
  return text + "]";
}

/// The elements of `tensor` in logical order as one row in host memory: the tensor's own memory where it already is
/// that.
at::Tensor flatten_on_host(const at::Tensor& tensor) {
  return tensor.detach().to(at::kCPU).resolve_conj().resolve_neg().contiguous().view({-1});
}

void copy_back(const at::Tensor& flat, at::Tensor& tensor) {
  if (flat.const_data_ptr() != tensor.const_data_ptr()) {
    tensor.detach().copy_(flat.view(tensor.sizes()));
  }
}

/// The part of `flat` that `owner` adds up.
at::Tensor piece_of(const at::Tensor& flat, std::int64_t owner, std::int64_t world_size) {
  const std::int64_t base = flat.numel() / world_size;
  const std::int64_t rest = flat.numel() % world_size;
  const std::int64_t begin = owner * base + std::min(owner, rest);
  return flat.narrow(0, begin, base + (owner < rest ? 1 : 0));
}

/// Replaces `into`, which is one of the terms, by their sum in order, or by its mean.
void add_in_order(const std::vector<at::Tensor>& terms, Reduction reduction, at::Tensor into) {
  const auto wide = at::toOpMathType(into.scalar_type());
  at::Tensor sum = terms.front().to(wide, /*non_blocking=*/false, /*copy=*/true);
  for (std::size_t i = 1; i < terms.size(); ++i) {
    sum.add_(terms[i].to(wide));
  }
  if (reduction == Reduction::Mean) {
    sum.div_(static_cast<std::int64_t>(terms.size()));
  }
  into.copy_(sum);
}

}  // namespace

PeerCollective::PeerCollective(Member self, std::unique_ptr<PeerExchange> exchange, std::chrono::milliseconds timeout)
    : self_(self), exchange_(std::move(exchange)), timeout_(timeout) {
  SPILLWAY_CHECK(self.rank >= 0 && self.rank < self.world_size, "the rank lies in its world");
  SPILLWAY_CHECK(timeout.count() > 0, "a collective has a deadline");
}

PeerCollective::~PeerCollective() = default;

template <typename Body>
void PeerCollective::run(Operation operation, Body body) {
  if (failure_) {
    std::rethrow_exception(failure_);
  }
  const at::NoGradGuard no_grad;
  const Call call{operation, ++calls_, timeout_, std::chrono::steady_clock::now() + timeout_};
  try {
    body(call);
  } catch (...) {
    failure_ = std::current_exception();
    exchange_.reset();
    throw;
  }
}

std::vector<at::Tensor> PeerCollective::nothing() const {
  return std::vector<at::Tensor>(static_cast<std::size_t>(self_.world_size));
}

std::vector<at::Tensor> PeerCollective::agree(const Call& call, const at::Tensor& mine) {
  return agree(call, std::vector<at::Tensor>(static_cast<std::size_t>(self_.world_size), mine));
}

std::vector<at::Tensor> PeerCollective::agree(const Call& call, const std::vector<at::Tensor>& mine) {
  const at::Tensor& own = mine[static_cast<std::size_t>(self_.rank)];
  std::vector<at::Tensor> headers = nothing();
  for (at::Tensor& header : headers) {
    header = at::empty_like(own);
  }
  headers[static_cast<std::size_t>(self_.rank)] = own;
  exchange_->exchange(mine, headers, call);

  const Header ours = read(own);
  for (std::size_t other = 0; other < headers.size(); ++other) {
    if (const Header theirs = read(headers[other]); !same_call(ours, theirs)) {
      throw Error("call " + std::to_string(call.number) + " of the group differs between ranks: rank " +
                  std::to_string(self_.rank) + " makes " + describe(ours) + ", rank " + std::to_string(other) +
                  " makes " + describe(theirs) + "; start all ranks with the same program and configuration");
    }
  }
  return headers;
}

void PeerCollective::all_reduce(at::Tensor& tensor, Reduction reduction) {
  check_all_reduce(tensor, reduction);
  run(Operation::AllReduce, [&](const Call& call) {
    agree(call, make_header(call.operation, static_cast<std::int64_t>(reduction), tensor));
    const auto self = static_cast<std::size_t>(self_.rank);
    at::Tensor flat = flatten_on_host(tensor);
    std::vector<at::Tensor> pieces = nothing();
    std::vector<at::Tensor> terms = nothing();
    for (std::size_t r = 0; r < pieces.size(); ++r) {
      pieces[r] = piece_of(flat, static_cast<std::int64_t>(r), self_.world_size);
    }
    for (std::size_t r = 0; r < terms.size(); ++r) {
      terms[r] = r == self ? pieces[self] : at::empty_like(pieces[self]);
    }
    exchange_->exchange(pieces, terms, call);
    add_in_order(terms, reduction, pieces[self]);
    const std::vector<at::Tensor> result(pieces.size(), pieces[self]);
    exchange_->exchange(result, pieces, call);
    copy_back(flat, tensor);
  });
}

std::vector<at::Tensor> PeerCollective::all_gather(const at::Tensor& tensor) {
  check_all_gather(tensor);
  std::vector<at::Tensor> gathered = nothing();
  run(Operation::AllGather, [&](const Call& call) {
    const auto headers = agree(call, make_header(call.operation, 0, tensor));
    const at::Tensor flat = flatten_on_host(tensor);
    const std::vector<at::Tensor> outgoing(gathered.size(), flat);
    std::vector<at::Tensor> incoming = nothing();
    for (std::size_t r = 0; r < gathered.size(); ++r) {
      std::vector<std::int64_t> sizes = tensor.sizes().vec();
      if (!sizes.empty()) {
        sizes.front() = read(headers[r])[kSizes];
      }
      gathered[r] = at::empty(sizes, tensor.options().device(at::kCPU));
      incoming[r] = gathered[r].view({-1});
    }
    incoming[static_cast<std::size_t>(self_.rank)].copy_(flat);
    exchange_->exchange(outgoing, incoming, call);
    for (at::Tensor& part : gathered) {
      part = part.to(tensor.device());
    }
  });
  return gathered;
}

void PeerCollective::broadcast(at::Tensor& tensor, int root) {
  check_broadcast(tensor, root, self_.world_size);
  run(Operation::Broadcast, [&](const Call& call) {
    agree(call, make_header(call.operation, root, tensor));
    at::Tensor flat = flatten_on_host(tensor);
    std::vector<at::Tensor> outgoing = nothing();
    std::vector<at::Tensor> incoming = nothing();
    if (self_.rank == root) {
      outgoing.assign(outgoing.size(), flat);
    } else {
      incoming[static_cast<std::size_t>(root)] = flat;
    }
    exchange_->exchange(outgoing, incoming, call);
    copy_back(flat, tensor);
  });
}

std::vector<at::Tensor> PeerCollective::all_to_all(std::span<const at::Tensor> outgoing) {
  check_all_to_all(outgoing, self_.world_size);
  const auto self = static_cast<std::size_t>(self_.rank);
  std::vector<at::Tensor> received = nothing();
  run(Operation::AllToAll, [&](const Call& call) {
    std::vector<at::Tensor> pieces = nothing();
    std::vector<at::Tensor> mine = nothing();
    for (std::size_t r = 0; r < pieces.size(); ++r) {
      pieces[r] = flatten_on_host(outgoing[r]);
      mine[r] = make_header(call.operation, 0, pieces[r]);
    }
    const auto headers = agree(call, mine);
    for (std::size_t r = 0; r < received.size(); ++r) {
      received[r] = at::empty({read(headers[r])[kSizes]}, pieces[self].options());
    }
    received[self].copy_(pieces[self]);
    exchange_->exchange(pieces, received, call);
    for (at::Tensor& part : received) {
      part = part.to(outgoing[self].device());
    }
  });
  return received;
}

void PeerCollective::barrier() {
  run(Operation::Barrier, [&](const Call& call) { agree(call, make_header(call.operation, 0, {})); });
}

}  // namespace spillway::distributed
