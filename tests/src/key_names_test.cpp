#include <spillway/app/config/key_names.hpp>

#include <array>
#include <string>

#include <gtest/gtest.h>

namespace spillway::app::key_names_test {
namespace {

TEST(KeyNames, CountsEdits) {
  EXPECT_EQ(edit_distance("", ""), 0U);
  EXPECT_EQ(edit_distance("abc", ""), 3U);
  EXPECT_EQ(edit_distance("", "abc"), 3U);
  EXPECT_EQ(edit_distance("stage", "stage"), 0U);
  EXPECT_EQ(edit_distance("kitten", "sitting"), 3U);
  EXPECT_EQ(edit_distance("sitting", "kitten"), 3U);
}

TEST(KeyNames, FindsTheKeyThatWasMeant) {
  constexpr std::array<std::string_view, 3> kKeys = {"temperature", "queue_size", "momentum"};
  EXPECT_EQ(nearest_name("temprature", kKeys), "temperature");
  EXPECT_EQ(nearest_name("queuesize", kKeys), "queue_size");
}

TEST(KeyNames, SuggestsNothingForAKeyThatIsNothingLikeOurs) {
  constexpr std::array<std::string_view, 2> kKeys = {"temperature", "lr"};
  EXPECT_EQ(nearest_name("warmup", kKeys), "");
  EXPECT_EQ(nearest_name(std::string(100'000, 't'), kKeys), "");
}

TEST(KeyNames, CutsAKeyThatIsLongerThanAny) {
  EXPECT_EQ(shown_name("stage"), "stage");
  EXPECT_LT(shown_name(std::string(100'000, 'x')).size(), 80U);
  EXPECT_EQ(shown_name(std::string("\0st\na\x1b[ge\x7f", 10)), "?st?a?[ge?");
}

}  // namespace
}  // namespace spillway::app::key_names_test
