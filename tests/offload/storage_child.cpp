// A process of its own for tests that take something away from it: system calls, memory, rights, or its life.
//
//   storage_child COMMAND FOLDER [--engine=auto|io_uring|threads] [--deny=CALL:ERRNO]... [--memlock=BYTES] [--nobody]
//                 [--lie-in-wait=PATH]
//
// COMMAND is one of
//   transfer     makes an engine and a swap file, writes, reads back and compares; prints what it got
//   stream       the same, then writes for ever
//   store        makes tiers and a block store, writes, reads back and compares; prints the engine at the end
//   swap         makes a swap file alone and prints what it is
//   deny-later   as transfer, but what is denied is denied while transfers are under way
// Prints `log: LINE` for each line that is logged; a failure is one line on standard error and status 1.
#include <fcntl.h>
#include <grp.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <system_error>

#include <spillway/offload/engine_factory.hpp>
#include <spillway/offload/error.hpp>

#include "offload/engine_fixture.hpp"
#include "offload/store_fixture.hpp"
#include "support/seccomp.hpp"

namespace spillway::test {
namespace {

constexpr std::uint64_t kBytes = std::uint64_t{8} << 20;
constexpr unsigned kNobody = 65534;

struct Options {
  std::string command;
  std::string folder;
  offload::EngineChoice engine = offload::EngineChoice::kAuto;
  std::vector<DeniedCall> denied;
};

void print(const std::string& line) {
  std::printf("%s\n", line.c_str());
  std::fflush(stdout);
}

void log(const std::string& line) { print("log: " + line); }

DeniedCall denied_call(const std::string& name, int error_number) {
  static const std::map<std::string, DeniedCall> kCalls{
      {"setup", {.number = SYS_io_uring_setup}},
      {"enter", {.number = SYS_io_uring_enter}},
      {"register", {.number = SYS_io_uring_register}},
      {"tmpfile", {.number = SYS_openat, .argument = 2, .bits = O_TMPFILE & ~O_DIRECTORY}},
      {"direct", {.number = SYS_fcntl, .argument = 2, .bits = O_DIRECT}},
      {"fallocate", {.number = SYS_fallocate}},
      {"getrandom", {.number = SYS_getrandom}}};
  DeniedCall call = kCalls.at(name);
  call.error_number = error_number;
  return call;
}

void limit_locked_memory(std::uint64_t bytes) {
  const rlimit limit{bytes, bytes};
  if (::setrlimit(RLIMIT_MEMLOCK, &limit) != 0) {
    throw std::system_error(errno, std::generic_category(), "setrlimit");
  }
}

// Without root's rights, limits and permissions bite.
void become_nobody() {
  if (::setgroups(0, nullptr) != 0 || ::setresgid(kNobody, kNobody, kNobody) != 0 ||
      ::setresuid(kNobody, kNobody, kNobody) != 0) {
    throw std::system_error(errno, std::generic_category(), "setresuid");
  }
}

// Links to `target` at the names that a swap file takes where there are neither nameless files nor random numbers.
void lie_in_wait(const std::string& folder, const std::string& target) {
  constexpr int kNames = 200;
  for (int i = 0; i < kNames; ++i) {
    char name[64];
    std::snprintf(name, sizeof name, "/.spillway-swap-%016llx", static_cast<unsigned long long>(::getpid() + i));
    if (::symlink(target.c_str(), (folder + name).c_str()) != 0) {
      throw std::system_error(errno, std::generic_category(), "symlink");
    }
  }
}

Options parse(int argc, char** argv) {
  if (argc < 3) {
    throw std::invalid_argument("usage: storage_child COMMAND FOLDER [OPTION]...");
  }
  Options options{.command = argv[1], .folder = argv[2], .denied = {}};
  for (int i = 3; i < argc; ++i) {
    const std::string argument = argv[i];
    const std::string name = argument.substr(0, argument.find('='));
    const std::string value = argument.substr(std::min(name.size() + 1, argument.size()));
    if (name == "--engine") {
      options.engine = value == "io_uring"  ? offload::EngineChoice::kIoUring
                       : value == "threads" ? offload::EngineChoice::kThreads
                                            : offload::EngineChoice::kAuto;
    } else if (name == "--deny") {
      const std::size_t colon = value.find(':');
      options.denied.push_back(denied_call(value.substr(0, colon), std::stoi(value.substr(colon + 1))));
    } else if (name == "--memlock") {
      limit_locked_memory(std::stoull(value));
    } else if (name == "--lie-in-wait") {
      lie_in_wait(options.folder, value);
    } else if (name == "--nobody") {
      become_nobody();
    } else {
      throw std::invalid_argument("unknown option " + argument);
    }
  }
  return options;
}

void deny_all(const Options& options) {
  for (const DeniedCall& call : options.denied) {
    deny(call);
  }
}

void describe(const offload::EngineInfo& info) {
  print("engine: " + info.name + (info.fixed_buffers ? ", fixed buffers" : "") +
        (info.fixed_files ? ", fixed files" : ""));
}

void transfer(const Options& options) {
  offload::SwapFile swap(options.folder, log);
  swap.grow(kBytes);
  const offload::AlignedBlock data = filled_block(kBytes, static_cast<std::uint64_t>(::getpid()));
  const offload::AlignedBlock back(kBytes);
  const auto engine = offload::make_engine(options.engine, {}, options.folder, log);
  const offload::FileId file = engine->register_file(swap.fd(), "swap file");
  engine->register_memory(data.bytes());
  engine->register_memory(back.bytes());
  const offload::EngineInfo info = engine->info();
  describe(info);
  print("note: " + info.note);
  const int rounds = options.command == "transfer" ? 1 : 1'000'000;
  for (int round = 0; round < rounds; ++round) {
    const offload::Ticket out = engine->submit(request(kWrite, file, 0, data.bytes()));
    const offload::Ticket in = engine->submit(request(kRead, file, 0, back.bytes()), {&out, 1});
    if (round == 4) {
      print("streaming");
      if (options.command == "deny-later") {
        deny_all(options);
      }
    }
    in.wait(kLong);
    if (!same(data.bytes(), back.bytes())) {
      throw std::runtime_error("other bytes came back");
    }
  }
  print("the same bytes came back");
}

void store(const Options& options) {
  constexpr std::size_t kBlocks = 6;
  const auto tiers = std::make_shared<offload::Tiers>(
      offload::TiersOptions{.nvme_path = options.folder, .engine = options.engine, .log = log});
  StreamedStore streamed(tiers, kBlocks, 3'000'001, 4);
  for (const std::uint8_t first : {std::uint8_t{1}, std::uint8_t{101}}) {
    streamed.fill(first);
    streamed.store.begin(streamed.ids, offload::Access::kRead);
    for (std::size_t i = 0; i < kBlocks; ++i) {
      const offload::Lease lease = streamed.store.acquire(streamed.ids[i], offload::Access::kRead);
      if (!all_equal(lease.bytes(), static_cast<std::uint8_t>(first + i))) {
        throw std::runtime_error("other bytes came back");
      }
    }
  }
  describe(tiers->engine().info());
  print("the same bytes came back");
}

void swap(const Options& options) {
  offload::SwapFile swap(options.folder, log);
  swap.grow(kBytes);
  struct stat status {};
  if (::fstat(swap.fd(), &status) != 0) {
    throw std::system_error(errno, std::generic_category(), "fstat");
  }
  char line[128];
  std::snprintf(line, sizeof line, "mode %o, links %lu, size %lld, allocated %s, direct %s", status.st_mode & 07777U,
                static_cast<unsigned long>(status.st_nlink), static_cast<long long>(status.st_size),
                static_cast<std::uint64_t>(status.st_blocks) * 512 >= kBytes ? "yes" : "no",
                swap.direct() ? "yes" : "no");
  print(line);
}

int run(int argc, char** argv) {
  try {
    const Options options = parse(argc, argv);
    if (options.command != "deny-later") {
      deny_all(options);
    }
    const auto command = options.command == "swap" ? swap : options.command == "store" ? store : transfer;
    command(options);
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "error: %s\n", error.what());
    return 1;
  }
}

}  // namespace
}  // namespace spillway::test

int main(int argc, char** argv) { return spillway::test::run(argc, argv); }
