#include <spillway/app/bench/deepspeed_peer.hpp>

#include <unistd.h>

#include <limits>

#include <spillway/app/data/dataset.hpp>
#include <spillway/offload/check.hpp>
#include <spillway/offload/error.hpp>
#include <spillway/offload/format_bytes.hpp>

namespace spillway::app {
namespace {

constexpr char kIoProgram[] = "/deepspeed_io";
constexpr char kStepProgram[] = "/deepspeed_step";
constexpr std::uint64_t kSubGroupNumel = 32'000'000;
constexpr unsigned kSweepPasses = 2;

}  // namespace

std::string default_peers_folder() { return (default_data_folders().cache / "peers").string(); }

std::string describe(const DeepSpeedSetting& setting) {
  return "blocks of " + offload::format_bytes(setting.block_bytes) + ", depth " + std::to_string(setting.depth) + ", " +
         std::to_string(setting.threads) + (setting.threads == 1 ? " thread" : " threads") +
         (setting.overlap_events ? "" : ", no overlap_events");
}

std::string DeepSpeedPeer::unavailable(const std::string& peers_folder) {
  return why_no_peer(peers_folder + kIoProgram);
}

DeepSpeedPeer::DeepSpeedPeer(const std::string& peers_folder) : process_(peers_folder + kIoProgram) {}

IoCost DeepSpeedPeer::measure(const IoJob& job, const DeepSpeedSetting& setting) {
  SPILLWAY_CHECK(job.direction != IoDirection::kMix, "DeepSpeed's op reads or writes");
  const Json answer =
      process_.ask(Json::Object{{"op", job.direction == IoDirection::kRead ? "read" : "write"},
                                {"path", "/proc/" + std::to_string(::getpid()) + "/fd/" + std::to_string(job.fd)},
                                {"bytes", job.bytes},
                                {"block_bytes", setting.block_bytes},
                                {"depth", std::uint64_t{setting.depth}},
                                {"threads", std::uint64_t{setting.threads}},
                                {"overlap_events", setting.overlap_events}});
  return {.seconds = peer_figure(answer, "seconds"), .cpu_s = peer_figure(answer, "cpu_s")};
}

DeepSpeedSetting DeepSpeedPeer::best_setting(const IoJob& job) {
  DeepSpeedSetting best;
  double least_s = std::numeric_limits<double>::infinity();
  const auto test = [&](const DeepSpeedSetting& setting) {
    for (unsigned pass = 0; pass < kSweepPasses; ++pass) {
      if (const double seconds = measure(job, setting).seconds; seconds < least_s) {
        least_s = seconds;
        best = setting;
      }
    }
  };
  for (const std::uint64_t block_bytes : {std::uint64_t{1} << 20, std::uint64_t{8} << 20}) {
    for (const unsigned depth : {8U, 32U, 128U}) {
      for (const unsigned threads : {1U, 2U, 4U}) {
        test({.block_bytes = block_bytes, .depth = depth, .threads = threads});
      }
    }
  }
  DeepSpeedSetting without = best;
  without.overlap_events = false;
  test(without);
  return best;
}

std::string ZeroStepPeer::unavailable(const std::string& peers_folder) {
  return why_no_peer(peers_folder + kStepProgram);
}

ZeroStepPeer::ZeroStepPeer(const std::string& peers_folder, const std::string& folder, std::uint64_t numel,
                           std::uint64_t tensors)
    : folder_(folder), process_(peers_folder + kStepProgram) {
  const Json answer = process_.ask(Json::Object{{"folder", std::filesystem::absolute(folder_.path()).string()},
                                                {"numel", numel},
                                                {"tensors", tensors},
                                                {"sub_group_numel", kSubGroupNumel}});
  const Json* const made = answer.find("numel");
  const auto* const count = made == nullptr ? nullptr : made->get_if<std::uint64_t>();
  if (count == nullptr) throw Error("DeepSpeed's side answers without numel");
  numel_ = static_cast<double>(*count);
}

double ZeroStepPeer::rate() {
  const Json answer = process_.ask(Json::Object{});
  peak_bytes_ = peer_figure(answer, "rss_bytes");
  return numel_ / 1e6 / peer_figure(answer, "seconds");
}

}  // namespace spillway::app
