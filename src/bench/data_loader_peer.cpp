#include <spillway/app/bench/data_loader_peer.hpp>

#include <unistd.h>

#include <spillway/offload/error.hpp>

namespace spillway::app {
namespace {

constexpr const char* kLoaderProgram = "/data_loader";

}  // namespace

std::string DataLoaderPeer::unavailable(const std::string& peers_folder) {
  const std::string program = peers_folder + kLoaderProgram;
  return ::access(program.c_str(), X_OK) == 0 ? "" : "not installed (`make peers` does it): " + program;
}

DataLoaderPeer::DataLoaderPeer(const std::string& peers_folder, const DataLoaderJob& job)
    : process_(peers_folder + kLoaderProgram) {
  static_cast<void>(process_.ask(
      Json::Object{{"folder", job.folder}, {"workers", job.workers}, {"batch", job.batch}, {"batches", job.batches}}));
}

double DataLoaderPeer::rate() {
  const Json answer = process_.ask(Json::Object{});
  const Json* const member = answer.find("images_per_s");
  const auto* const rate = member == nullptr ? nullptr : member->get_if<double>();
  if (rate == nullptr) throw Error("torchvision's side answers without images_per_s");
  return *rate;
}

}  // namespace spillway::app
