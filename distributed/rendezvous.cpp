#include <spillway/distributed/rendezvous.hpp>

#include <algorithm>
#include <string>
#include <vector>

#include <c10/util/Exception.h>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include <spillway/distributed/meeting.hpp>
#include <spillway/distributed/peer_exchange.hpp>
#include <spillway/offload/error.hpp>

namespace spillway::distributed {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

/// What c10d said, without the stack trace that c10::Error carries.
std::string first_line_of(const std::exception& cause) {
  const auto* const c10_error = dynamic_cast<const c10::Error*>(&cause);
  const std::string text = c10_error != nullptr ? c10_error->what_without_backtrace() : cause.what();
  return text.substr(0, text.find('\n'));
}

std::string arrival_key(int rank) { return "arrived/" + std::to_string(rank); }

c10::intrusive_ptr<c10d::TCPStore> serve_store(std::uint16_t port) {
  c10d::TCPStoreOptions options;
  options.port = port;
  options.isServer = true;
  options.waitWorkers = false;
  options.multiTenant = true;  // Several groups of one process meet at one port.
  try {
    return c10::make_intrusive<c10d::TCPStore>("127.0.0.1", options);
  } catch (const std::exception& cause) {
    throw Error("rendezvous: can't listen on TCP port " + std::to_string(port) + " (" + first_line_of(cause) +
                "); set MASTER_PORT to a free port, the same for all ranks");
  }
}

}  // namespace

struct RendezvousHost::Impl {
  c10::intrusive_ptr<c10d::TCPStore> store;
};

RendezvousHost::RendezvousHost(std::uint16_t port) : impl_(std::make_unique<Impl>(Impl{serve_store(port)})) {}
RendezvousHost::RendezvousHost(RendezvousHost&&) noexcept = default;
RendezvousHost& RendezvousHost::operator=(RendezvousHost&&) noexcept = default;
RendezvousHost::~RendezvousHost() = default;

std::uint16_t RendezvousHost::port() const noexcept { return impl_->store->getPort(); }

Meeting::Meeting(const RankEnvironment& environment, const GroupOptions& options)
    : environment_(environment),
      options_(options),
      deadline_(steady_clock::now() + options.rendezvous_timeout),
      prefix_("rendezvous of rank " + std::to_string(environment.rank) + " of " +
              std::to_string(environment.world_size) + " at " + environment.master_addr + ":" +
              std::to_string(environment.master_port) + ": ") {}

milliseconds Meeting::remaining() const {
  return std::max(std::chrono::ceil<milliseconds>(deadline_ - steady_clock::now()), milliseconds(1));
}

void Meeting::fail(const std::string& what, const std::exception& cause) const {
  const std::string reason = prefix_ + what + " (" + first_line_of(cause) + ")";
  if (late()) {
    throw TimedOut(reason + " within the deadline of " + std::to_string(options_.rendezvous_timeout.count()) +
                   " ms; see whether rank 0 or its launcher runs, and whether MASTER_ADDR and MASTER_PORT are its");
  }
  throw Error(reason + "; check MASTER_ADDR, MASTER_PORT and the network between the ranks");
}

c10::intrusive_ptr<c10d::Store> Meeting::open_store() const {
  c10::intrusive_ptr<c10d::TCPStore> store;
  if (environment_.rank == 0 && !environment_.launcher_hosts_store) {
    store = serve_store(environment_.master_port);
  } else {
    c10d::TCPStoreOptions options;
    options.port = environment_.master_port;
    options.waitWorkers = false;
    options.timeout = remaining();
    try {
      store = c10::make_intrusive<c10d::TCPStore>(environment_.master_addr, options);
    } catch (const std::exception& cause) {
      fail("could not reach the store", cause);
    }
  }
  store->setTimeout(remaining());
  // The attempt keeps what a launcher's store still holds of an earlier start apart from this one.
  return c10::make_intrusive<c10d::PrefixStore>(options_.name + "/" + std::to_string(environment_.attempt), store);
}

void Meeting::name_missing(c10d::Store& store) const {
  std::vector<int> missing;
  for (int rank = 0; rank < environment_.world_size; ++rank) {
    if (!store.check({arrival_key(rank)})) {
      missing.push_back(rank);
    }
  }
  throw TimedOut(prefix_ + list_ranks(missing) + " did not arrive within the deadline of " +
                 std::to_string(options_.rendezvous_timeout.count()) +
                 " ms; see whether it was started, and with this address and port");
}

c10::intrusive_ptr<c10d::Store> Meeting::attend() const {
  auto store = open_store();
  std::vector<std::string> keys;
  for (int rank = 0; rank < environment_.world_size; ++rank) {
    keys.push_back(arrival_key(rank));
  }
  // c10d's own meeting would not say who is missing.
  try {
    store->set(arrival_key(environment_.rank), std::string("here"));
    try {
      store->wait(keys, remaining());
    } catch (const std::exception&) {
      if (late()) {
        name_missing(*store);
      }
      throw;
    }
  } catch (const Error&) {
    throw;
  } catch (const std::exception& cause) {
    fail("the store did not answer", cause);
  }
  return store;
}

}  // namespace spillway::distributed
