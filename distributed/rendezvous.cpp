#include <spillway/distributed/rendezvous.hpp>

#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include <spillway/distributed/meeting.hpp>

namespace spillway::distributed {

struct RendezvousHost::Impl {
  c10::intrusive_ptr<c10d::TCPStore> store;
};

RendezvousHost::RendezvousHost(std::uint16_t port) : impl_(std::make_unique<Impl>(Impl{serve_store(port)})) {}
RendezvousHost::RendezvousHost(RendezvousHost&&) noexcept = default;
RendezvousHost& RendezvousHost::operator=(RendezvousHost&&) noexcept = default;
RendezvousHost::~RendezvousHost() = default;

std::uint16_t RendezvousHost::port() const noexcept { return impl_->store->getPort(); }

}  // namespace spillway::distributed
