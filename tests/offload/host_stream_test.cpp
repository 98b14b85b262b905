#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <vector>

#include <spillway/offload/copy_stream.hpp>
#include <spillway/offload/error.hpp>

namespace spillway::offload::host_stream_test {
namespace {

// Three streams pass a buffer on: copied in, changed, copied out, with the input filled again as soon as an event says
// that it may be. The delays have every order that the events leave open.
bool pipeline_keeps_its_data(unsigned seed, bool with_events) {
  constexpr int kRounds = 12;
  std::vector<std::byte> input(4096);
  std::vector<std::byte> staged(4096);
  std::vector<std::byte> output(4096);
  const auto in = make_host_stream(3 * seed + 1);
  const auto compute = make_host_stream(3 * seed + 2);
  const auto out = make_host_stream(3 * seed + 3);
  bool good = true;
  const auto link = [&](CopyStream& later, CopyStream& earlier) {
    if (with_events) {
      later.wait(earlier.record());
    }
  };
  for (int round = 0; round < kRounds; ++round) {
    in->run([&input, round] { std::fill(input.begin(), input.end(), std::byte(round)); });
    link(*in, *out);  // The staging buffer is free again.
    in->copy(staged, input);
    link(*compute, *in);
    compute->run([&staged] {
      for (std::byte& value : staged) {
        value ^= std::byte{0x55};
      }
    });
    link(*out, *compute);
    out->copy(output, staged);
    out->run([&output, &good, round] { good = good && output.front() == (std::byte(round) ^ std::byte{0x55}); });
  }
  for (CopyStream* stream : {in.get(), compute.get(), out.get()}) {
    stream->record()->synchronize();
  }
  return good;
}

TEST(HostStream, KeepsAPipelineOfThreeStreamsInOrderUnderAnyDelays) {
  for (unsigned seed = 0; seed < 10; ++seed) {
    EXPECT_TRUE(pipeline_keeps_its_data(seed, true)) << "seed " << seed;
  }
}

#if !defined(__SANITIZE_THREAD__)  // It is a race on purpose.
TEST(HostStream, ShowsAMissingWaitOnAMachineWithoutAGpu) {
  bool always_good = true;
  for (unsigned seed = 0; seed < 10; ++seed) {
    always_good = pipeline_keeps_its_data(seed, false) && always_good;
  }
  EXPECT_FALSE(always_good) << "the delays never let a stream overtake another";
}
#endif

TEST(NoCudaStream, SaysWhyItCannotBeMadeWhereThereIsNoDevice) {
  if (cuda_available()) {
    GTEST_SKIP() << "there is a CUDA device";
  }
  EXPECT_THROW(static_cast<void>(make_cuda_stream()), Error);
}

TEST(HostStream, IsNoCudaStream) { EXPECT_EQ(native_cuda_stream(*make_host_stream()), nullptr); }

}  // namespace
}  // namespace spillway::offload::host_stream_test
