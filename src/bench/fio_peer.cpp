#include <spillway/app/bench/fio_peer.hpp>

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdint>
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

std::uint64_t whole_number(const Json* number) {
  const auto* const value = number != nullptr ? number->get_if<std::uint64_t>() : nullptr;
  return value != nullptr ? *value : 0;
}

struct Moved {
  std::uint64_t bytes = 0;
  std::uint64_t milliseconds = 0;
  std::uint64_t bytes_per_s = 0;
};

// jobs[0].<direction>.
Moved moved(const Json& report, const char* direction) {
  const Json* const jobs = report.find("jobs");
  const auto* const list = jobs != nullptr ? jobs->get_if<Json::Array>() : nullptr;
  const Json* const side = list != nullptr && !list->empty() ? list->front().find(direction) : nullptr;
  if (side == nullptr) {
    return {};
  }
  return {whole_number(side->find("io_bytes")), whole_number(side->find("runtime")),
          whole_number(side->find("bw_bytes"))};
}

const char* fio_pattern(IoDirection direction) {
  switch (direction) {
    case IoDirection::kRead:
      return "read";
    case IoDirection::kWrite:
      return "write";
    case IoDirection::kMix:
      return "rw";
  }
  return "read";
}

}  // namespace

std::string fio_unavailable() {
  return run_program("fio --version 2>/dev/null").status == 0 ? std::string() : "fio is not installed";
}

double run_fio(const IoJob& job) {
  const ProgramEnd end = run_program(
      "GLIBC_TUNABLES=glibc.malloc.hugetlb=1 fio --name=peer --ioengine=io_uring --direct=1 --fallocate=none "
      "--output-format=json --rw=" +
      std::string(fio_pattern(job.direction)) + " --bs=" + std::to_string(job.block_bytes) +
      " --iodepth=" + std::to_string(job.depth) + " --size=" + std::to_string(job.bytes) + " --filename=/proc/" +
      std::to_string(::getpid()) + "/fd/" + std::to_string(job.fd) + " 2>&1");
  if (end.status != 0) {
    throw Error("fio ended with status " + std::to_string(end.status) + ": " + end.output.substr(0, 500));
  }
  const Json report = parse_json(end.output, "fio's report");
  const Moved read = moved(report, "read");
  const Moved written = moved(report, "write");
  if (job.direction != IoDirection::kMix) {
    const std::uint64_t rate = job.direction == IoDirection::kRead ? read.bytes_per_s : written.bytes_per_s;
    if (rate > 0) {
      return static_cast<double>(rate);
    }
  } else if (const std::uint64_t milliseconds = std::max(read.milliseconds, written.milliseconds); milliseconds > 0) {
    return static_cast<double>(read.bytes + written.bytes) / (static_cast<double>(milliseconds) * 1e-3);
  }
  throw Error("fio's report names no bandwidth; is it older than version 3?");
}

}  // namespace spillway::app
