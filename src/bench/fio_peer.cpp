#include <spillway/app/bench/fio_peer.hpp>

#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdio>

#include <spillway/app/config/json.hpp>
#include <spillway/offload/error.hpp>

namespace spillway::app {
namespace {

struct ProgramEnd {
  int status = -1;
  std::string output;
};

// All of the command is made up here, so that the shell gets nothing to misunderstand.
ProgramEnd run_program(const std::string& command) {
  std::FILE* const pipe = ::popen(command.c_str(), "re");
  if (pipe == nullptr) {
    return {};
  }
  ProgramEnd end;
  std::array<char, 4096> piece{};
  for (std::size_t read = 0; (read = std::fread(piece.data(), 1, piece.size(), pipe)) > 0;) {
    end.output.append(piece.data(), read);
  }
  const int status = ::pclose(pipe);
  end.status = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  return end;
}

// jobs[0].<direction>.bw_bytes, or nothing.
const std::uint64_t* bandwidth(const Json& report, const char* direction) {
  const Json* const jobs = report.find("jobs");
  const auto* const list = jobs != nullptr ? jobs->get_if<Json::Array>() : nullptr;
  const Json* const side = list != nullptr && !list->empty() ? list->front().find(direction) : nullptr;
  const Json* const rate = side != nullptr ? side->find("bw_bytes") : nullptr;
  return rate != nullptr ? rate->get_if<std::uint64_t>() : nullptr;
}

}  // namespace

std::string fio_unavailable() {
  return run_program("fio --version 2>/dev/null").status == 0 ? std::string() : "fio is not installed";
}

double run_fio(const FioOptions& options) {
  const char* const direction = options.write ? "write" : "read";
  const ProgramEnd end =
      run_program("fio --name=peer --ioengine=io_uring --direct=1 --fallocate=none --output-format=json --rw=" +
                  std::string(direction) + " --bs=" + std::to_string(options.block_bytes) +
                  " --iodepth=" + std::to_string(options.depth) + " --size=" + std::to_string(options.bytes) +
                  " --filename=/proc/" + std::to_string(::getpid()) + "/fd/" + std::to_string(options.fd) + " 2>&1");
  if (end.status != 0) {
    throw Error("fio ended with status " + std::to_string(end.status) + ": " + end.output.substr(0, 500));
  }
  const Json report = parse_json(end.output, "fio's report");
  const std::uint64_t* const rate = bandwidth(report, direction);
  if (rate == nullptr || *rate == 0) {
    throw Error("fio's report names no bandwidth; is it older than version 3?");
  }
  return static_cast<double>(*rate);
}

}  // namespace spillway::app
