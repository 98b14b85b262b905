// One rank of a group, started by process_group_test: --child=rank SCENARIO
// [TIMEOUT_MS [RENDEZVOUS_TIMEOUT_MS]].
// Exit status: 0 done, 1 an expectation failed or an unexpected error, 3 PeerLost, 4 TimedOut.

#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <exception>
#include <functional>
#include <iostream>
#include <map>
#include <string>

#include <ATen/core/Tensor.h>
#include <ATen/ops/ones.h>
#include <gtest/gtest.h>

#include <spillway/distributed/process_group.hpp>
#include <spillway/offload/error.hpp>

#include "distributed/conformance.hpp"
#include "distributed/eight_weights.hpp"
#include "support/child_role.hpp"

namespace spillway::test::rank_child {
namespace {

using distributed::Collective;
using distributed::Reduction;
using std::chrono::milliseconds;

constexpr int kPeerLost = 3;
constexpr int kTimedOut = 4;

sigset_t usr1() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGUSR1);
  return signals;
}

void say(const std::string& line) { std::cout << line << std::endl; }

void conform(Collective& group) {
  for (const Claim& claim : conformance_suite()) {
    SCOPED_TRACE(claim.name);
    claim.check(group);
  }
}

/// Says that this rank is connected, once all are.
void meet(Collective& group) {
  group.barrier();
  say("met");
}

void all_reduce_ones(Collective& group) {
  at::Tensor tensor = at::ones({1000});
  group.all_reduce(tensor, Reduction::Sum);
}

void broadcast_ones(Collective& group) {
  at::Tensor tensor = at::ones({1000});
  group.broadcast(tensor, 0);
}

/// Does nothing until the process is killed.
[[noreturn]] void stall() {
  while (true) {
    pause();
  }
}

/// The last rank stalls, and the others say how long they waited for it.
void call_without_the_last(Collective& group, void (*call)(Collective&)) {
  meet(group);
  if (group.rank() == group.world_size() - 1) {
    stall();
  }
  const auto start = std::chrono::steady_clock::now();
  try {
    call(group);
  } catch (const Error&) {
    const auto waited = std::chrono::steady_clock::now() - start;
    say("waited_ms " + std::to_string(std::chrono::floor<milliseconds>(waited).count()));
    throw;
  }
}

void reduce_for_ever(Collective& group) {
  meet(group);
  while (true) {
    all_reduce_ones(group);
  }
}

/// Rank 0 finds out what happened to rank 1, says so and stays. Rank 2 makes its call when it is told to by SIGUSR1,
/// and comes upon rank 0 first.
void learn_from_rank_0(Collective& group) {
  meet(group);
  if (group.rank() == 0) {
    try {
      all_reduce_ones(group);
    } catch (const Error&) {
      say("failed");
    }
  }
  if (group.rank() != 2) {
    stall();
  }
  sigset_t signals = usr1();
  int number = 0;
  sigwait(&signals, &number);
  all_reduce_ones(group);
}

using Scenario = std::function<void(Collective&)>;

const std::map<std::string, Scenario>& scenarios() {
  static const std::map<std::string, Scenario> all{
      {"conform", conform},
      {"all_reduce_without_the_last", [](Collective& group) { call_without_the_last(group, all_reduce_ones); }},
      {"broadcast_without_the_last", [](Collective& group) { call_without_the_last(group, broadcast_ones); }},
      {"reduce_for_ever", reduce_for_ever},
      {"learn_from_rank_0", learn_from_rank_0},
      {"eight_weights", [](Collective& group) { say(to_hex_floats(eight_weights_on_rank(group))); }},
  };
  return all;
}

int run(const std::string& scenario, const distributed::GroupOptions& options) {
  try {
    const auto group = distributed::connect(distributed::read_rank_environment(), options);
    scenarios().at(scenario)(*group);
  } catch (const PeerLost& error) {
    std::cerr << error.what() << std::endl;
    return kPeerLost;
  } catch (const TimedOut& error) {
    std::cerr << error.what() << std::endl;
    return kTimedOut;
  } catch (const std::exception& error) {
    std::cerr << error.what() << std::endl;
    return 1;
  }
  return ::testing::UnitTest::GetInstance()->Failed() ? 1 : 0;
}

milliseconds milliseconds_at(ChildRole::Arguments words, std::size_t index) {
  return milliseconds(words.size() > index ? std::stoi(words[index]) : 30'000);
}

int play(ChildRole::Arguments words) {
  ::testing::InitGoogleTest();
  const sigset_t signals = usr1();
  sigprocmask(SIG_BLOCK, &signals, nullptr);  // Before any thread starts, so that sigwait gets it.
  distributed::GroupOptions options;
  options.timeout = milliseconds_at(words, 1);
  options.rendezvous_timeout = milliseconds_at(words, 2);
  return run(words.empty() ? "" : words[0], options);
}

const ChildRole role("rank", play);

}  // namespace
}  // namespace spillway::test::rank_child
