#include <spillway/distributed/process_group.hpp>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>

#include <algorithm>
#include <chrono>
#include <string>
#include <system_error>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <spillway/offload/error.hpp>
#include <spillway/offload/unique_fd.hpp>

#include "distributed/eight_weights.hpp"
#include "distributed/ranks.hpp"
#include "support/child_role.hpp"

namespace spillway::test::process_group_test {
namespace {

using distributed::GroupOptions;
using distributed::RankEnvironment;
using std::chrono::milliseconds;
using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::HasSubstr;

constexpr const char* kRole = "rank";
constexpr int kPeerLost = 3;
constexpr int kTimedOut = 4;
constexpr std::chrono::seconds kLossNoticedWithin{5};

/// A TCP port of the loopback device that nobody else gets while this lives. Nothing listens on it unless asked to; a
/// program that does so itself still can, because a bound socket that does not listen allows that to reuse its address.
class ReservedPort {
 public:
  ReservedPort() : socket_(offload::UniqueFd::adopt(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0))) {
    const int yes = 1;
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_ANY);
    socklen_t size = sizeof address;
    if (setsockopt(socket_.get(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes) != 0 ||
        bind(socket_.get(), reinterpret_cast<const sockaddr*>(&address), size) != 0 ||
        getsockname(socket_.get(), reinterpret_cast<sockaddr*>(&address), &size) != 0) {
      throw std::system_error(errno, std::generic_category(), "reserving a port");
    }
    number_ = ntohs(address.sin_port);
  }

  void listen() const {
    if (::listen(socket_.get(), 1) != 0) {
      throw std::system_error(errno, std::generic_category(), "listening");
    }
  }

  [[nodiscard]] std::uint16_t number() const { return number_; }

 private:
  offload::UniqueFd socket_;
  std::uint16_t number_ = 0;
};

RankEnvironment rank_of_two(int rank, std::uint16_t port) {
  return {.rank = rank, .world_size = 2, .local_rank = rank, .master_addr = "127.0.0.1", .master_port = port};
}

void wait_until_met(RankProcesses& ranks, int count) {
  for (int rank = 0; rank < count; ++rank) {
    ranks.rank(rank).wait_for_output("met");
  }
}

class GlooConformance : public ::testing::TestWithParam<int> {};

TEST_P(GlooConformance, HoldsForProcesses) {
  RankProcesses ranks(kRole, {"conform"}, GetParam());
  for (const Outcome& outcome : ranks.wait()) {
    EXPECT_EQ(outcome.exit_status, 0) << outcome.output << outcome.error;
  }
}

INSTANTIATE_TEST_SUITE_P(Ranks, GlooConformance, ::testing::Values(2, 3));

TEST(ProcessGroup, MeetsAtRankZeroWithoutALauncher) {
  const ReservedPort port;
  Child first(this_program(),
              rank_options(as_child(kRole, {"eight_weights"}), 0, 2, port.number(), /*rank_0_serves=*/true));
  Child second(this_program(),
               rank_options(as_child(kRole, {"eight_weights"}), 1, 2, port.number(), /*rank_0_serves=*/true));
  const Outcome outcome = first.wait();
  EXPECT_EQ(outcome.exit_status, 0) << outcome.error;
  EXPECT_EQ(second.wait().output, outcome.output);
}

TEST(ProcessGroup, TwoRanksEqualTwoAccumulatedMicroBatchesBitForBit) {
  const at::Tensor accumulated = eight_weights_accumulated();
  ASSERT_EQ(to_four_decimals(accumulated), kEightWeights);

  RankProcesses ranks(kRole, {"eight_weights"}, 2);
  for (const Outcome& outcome : ranks.wait()) {
    EXPECT_EQ(outcome.exit_status, 0) << outcome.error;
    EXPECT_EQ(outcome.output, to_hex_floats(accumulated) + "\n");
  }
}

class KilledRank : public ::testing::TestWithParam<int> {};

TEST_P(KilledRank, IsNamedByTheOthersLongBeforeTheDeadline) {
  const int victim = GetParam();
  RankProcesses ranks(kRole, {"reduce_for_ever"}, 3);
  wait_until_met(ranks, 3);

  ranks.rank(victim).signal(SIGKILL);

  const auto killed = std::chrono::steady_clock::now();
  for (int rank = 0; rank < 3; ++rank) {
    const Outcome outcome = ranks.rank(rank).wait();
    if (rank != victim) {
      EXPECT_EQ(outcome.exit_status, kPeerLost) << outcome.error;
      EXPECT_THAT(outcome.error, HasSubstr("lost rank " + std::to_string(victim)));
    }
  }
  EXPECT_LT(std::chrono::steady_clock::now() - killed, kLossNoticedWithin);
}

INSTANTIATE_TEST_SUITE_P(Ranks, KilledRank, ::testing::Values(0, 2));

TEST(ProcessGroup, NoticesThatTheRankIsLostThatServedTheStore) {
  const ReservedPort port;
  Child first(this_program(),
              rank_options(as_child(kRole, {"reduce_for_ever"}), 0, 2, port.number(), /*rank_0_serves=*/true));
  Child second(this_program(),
               rank_options(as_child(kRole, {"reduce_for_ever"}), 1, 2, port.number(), /*rank_0_serves=*/true));
  first.wait_for_output("met");
  second.wait_for_output("met");

  first.signal(SIGKILL);

  const Outcome outcome = second.wait(kLossNoticedWithin);
  EXPECT_EQ(outcome.exit_status, kPeerLost) << outcome.error;
  EXPECT_THAT(outcome.error, HasSubstr("lost rank 0"));
}

class StalledRank : public ::testing::TestWithParam<const char*> {};

TEST_P(StalledRank, TimesOutAtTheDeadlineWithOperationAndRank) {
  constexpr int kTimeoutMs = 1500;
  constexpr int kSlackMs = 3000;  // For a loaded machine; the default deadline is ten minutes.
  RankProcesses ranks(kRole, {std::string(GetParam()) + "_without_the_last", std::to_string(kTimeoutMs)}, 3);
  int longest_ms = 0;
  for (int rank = 0; rank < 2; ++rank) {
    const Outcome outcome = ranks.rank(rank).wait();
    EXPECT_EQ(outcome.exit_status, kTimedOut) << outcome.error;
    EXPECT_THAT(outcome.error,
                AllOf(HasSubstr(GetParam()), HasSubstr("deadline of 1500 ms"), HasSubstr("rank 2 did not arrive")));
    const auto text = outcome.output.find("waited_ms ");
    ASSERT_NE(text, std::string::npos) << outcome.output;
    longest_ms = std::max(longest_ms, std::stoi(outcome.output.substr(text + 10)));
  }
  // The first to arrive waits until the deadline, and tells the other.
  EXPECT_GE(longest_ms, kTimeoutMs);
  EXPECT_LE(longest_ms, kTimeoutMs + kSlackMs);
}

INSTANTIATE_TEST_SUITE_P(Calls, StalledRank, ::testing::Values("all_reduce", "broadcast"),
                         [](const auto& each) { return std::string(each.param); });

TEST(ProcessGroup, TimesOutOnAProcessThatIsStoppedInTheMiddle) {
  RankProcesses ranks(kRole, {"reduce_for_ever", "1500"}, 3);
  wait_until_met(ranks, 3);

  ranks.rank(1).signal(SIGSTOP);

  for (const int rank : {0, 2}) {
    const Outcome outcome = ranks.rank(rank).wait();
    EXPECT_EQ(outcome.exit_status, kTimedOut) << outcome.error;
    // Stopped between two pieces of a call, it also holds up the other rank, which is then late as well.
    const std::string both = rank == 0 ? "ranks 1, 2 did not arrive" : "ranks 0, 1 did not arrive";
    EXPECT_THAT(outcome.error,
                AllOf(HasSubstr("all_reduce"), AnyOf(HasSubstr("rank 1 did not arrive"), HasSubstr(both))));
  }
}

TEST(ProcessGroup, PassesALossOnToARankThatWasNotInTheCall) {
  RankProcesses ranks(kRole, {"learn_from_rank_0"}, 3);
  wait_until_met(ranks, 3);
  ranks.rank(1).signal(SIGKILL);
  ranks.rank(0).wait_for_output("failed");

  ranks.rank(2).signal(SIGUSR1);

  const Outcome outcome = ranks.rank(2).wait(kLossNoticedWithin);
  EXPECT_EQ(outcome.exit_status, kPeerLost) << outcome.error;
  EXPECT_THAT(outcome.error, HasSubstr("lost rank 1 (reported by rank 0)"));
}

TEST(ProcessGroup, PassesADeadlineOnToARankThatWasNotInTheCall) {
  RankProcesses ranks(kRole, {"learn_from_rank_0", "1500"}, 3);
  wait_until_met(ranks, 3);
  ranks.rank(0).wait_for_output("failed");

  ranks.rank(2).signal(SIGUSR1);

  const Outcome outcome = ranks.rank(2).wait(kLossNoticedWithin);
  EXPECT_EQ(outcome.exit_status, kTimedOut) << outcome.error;
  EXPECT_THAT(outcome.error,
              HasSubstr("ranks 1, 2 did not arrive within the deadline of 1500 ms (reported by rank 0)"));
}

TEST(ProcessGroup, NamesTheRankThatNeverCameToTheRendezvous) {
  RankProcesses ranks(kRole, {"conform", "30000", "3000"}, /*world_size=*/3, /*count=*/2);
  for (const Outcome& outcome : ranks.wait()) {
    EXPECT_EQ(outcome.exit_status, kTimedOut) << outcome.error;
    EXPECT_THAT(outcome.error, AllOf(HasSubstr("rendezvous"), HasSubstr("2 did not arrive"), HasSubstr("3000 ms")));
  }
}

TEST(ProcessGroup, GivesUpOnAStoreThatDoesNotAnswer) {
  const ReservedPort port;
  GroupOptions options;
  options.rendezvous_timeout = milliseconds(300);
  try {
    (void)distributed::connect(rank_of_two(1, port.number()), options);
    ADD_FAILURE() << "no error";
  } catch (const TimedOut& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr("rank 1 of 2"), HasSubstr("127.0.0.1:" + std::to_string(port.number())),
                                    HasSubstr("could not reach the store"), HasSubstr("300 ms")));
  }
}

TEST(ProcessGroup, SaysThatThePortIsTaken) {
  const ReservedPort port;
  port.listen();
  try {
    (void)distributed::connect(rank_of_two(0, port.number()));
    ADD_FAILURE() << "no error";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr("can't listen on TCP port " + std::to_string(port.number())),
                                    HasSubstr("MASTER_PORT")));
  }
}

TEST(ProcessGroup, RefusesOptionsThatCantBeRight) {
  const auto refuses = [](const RankEnvironment& environment, GroupOptions options, const std::string& text) {
    try {
      (void)distributed::connect(environment, options);
      ADD_FAILURE() << "no error";
    } catch (const ConfigError& error) {
      EXPECT_THAT(error.what(), HasSubstr(text));
    }
  };
  refuses(rank_of_two(2, 1), {}, "rank 2 of 2");
  refuses(rank_of_two(0, 0), {}, "MASTER_PORT");
  refuses(rank_of_two(0, 1), {.timeout = milliseconds(0)}, "at least 1 ms");
}

}  // namespace
}  // namespace spillway::test::process_group_test
