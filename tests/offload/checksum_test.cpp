#include <spillway/offload/checksum.hpp>

#include <gtest/gtest.h>

#include <string_view>
#include <vector>

#include "support/property.hpp"

namespace spillway::offload::checksum_test {
namespace {

std::uint64_t sum_of(std::string_view text, std::uint64_t seed = 0) {
  return xxh3_64(std::as_bytes(std::span(text)), seed);
}

// From the xxHash project's specification and its sanity check.
TEST(Checksum, IsXxh3) {
  EXPECT_EQ(sum_of(""), 0x2D06800538D394C2U);
  EXPECT_EQ(sum_of("abc"), 0x78AF5F94892F3950U);
}

TEST(Checksum, DependsOnEveryBitAndOnTheSeed) {
  std::vector<std::byte> bytes(777);
  const std::uint64_t before = xxh3_64(bytes, 5);
  EXPECT_NE(xxh3_64(bytes, 6), before);
  for (std::size_t bit = 0; bit < bytes.size() * 8; ++bit) {
    bytes[bit / 8] ^= std::byte(1U << (bit % 8));
    EXPECT_NE(xxh3_64(bytes, 5), before) << bit;
    bytes[bit / 8] ^= std::byte(1U << (bit % 8));
  }
}

TEST(Checksum, IsTheSameWhateverTheProcessorCanDo) {
  test::for_random_seeds(5, [](test::Random& random) {
    std::vector<std::byte> memory(20'000);
    for (std::byte& byte : memory) {
      byte = std::byte(random.below(256));
    }
    for (std::size_t bytes = 0; bytes < 3000; ++bytes) {
      const auto part = std::span<const std::byte>(memory).subspan(random.below(64), bytes);
      const std::uint64_t seed = random.engine()();
      ASSERT_EQ(xxh3_64(part, seed), xxh3_64_portable(part, seed)) << bytes << " bytes";
    }
    ASSERT_EQ(xxh3_64(memory, 1), xxh3_64_portable(memory, 1));
  });
}

}  // namespace
}  // namespace spillway::offload::checksum_test
