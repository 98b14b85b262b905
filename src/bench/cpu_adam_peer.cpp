#include <spillway/app/bench/cpu_adam_peer.hpp>

namespace spillway::app {
namespace {

constexpr char kAdamProgram[] = "/deepspeed_adam";

}  // namespace

std::string CpuAdamPeer::unavailable(const std::string& peers_folder) {
  return why_no_peer(peers_folder + kAdamProgram);
}

CpuAdamPeer::CpuAdamPeer(const std::string& peers_folder) : process_(peers_folder + kAdamProgram) {}

void CpuAdamPeer::start(const AdamCase& about) {
  static_cast<void>(process_.ask(Json::Object{{"numel", about.numel},
                                              {"tensors", about.tensors},
                                              {"bf16", about.type == at::kBFloat16},
                                              {"bf16_state", about.state == optimizer::StateFormat::kBFloat16},
                                              {"clips", about.clips}}));
  numel_ = static_cast<double>(about.numel);
}

double CpuAdamPeer::rate() { return numel_ / 1e6 / peer_figure(process_.ask(Json::Object{}), "seconds"); }

double CpuAdamPeer::mean_abs() { return peer_figure(process_.ask(Json::Object{{"check", true}}), "mean_abs"); }

}  // namespace spillway::app
