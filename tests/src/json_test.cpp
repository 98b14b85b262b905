#include <spillway/app/config/json.hpp>

#include <cmath>
#include <limits>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <spillway/offload/error.hpp>

#include "support/errors.hpp"

namespace spillway::app::json_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

/// A list inside a list, `depth` of them.
std::string nested_lists(std::size_t depth) { return std::string(depth, '[') + std::string(depth, ']'); }

TEST(Json, KeepsIntegersApartFromOtherNumbers) {
  const Json json = parse_json("[1, -1, 1.0, 18446744073709551615, -9223372036854775808]", "x");
  const auto& list = *json.get_if<Json::Array>();
  EXPECT_EQ(*list[0].get_if<std::uint64_t>(), 1U);
  EXPECT_EQ(*list[1].get_if<std::int64_t>(), -1);
  EXPECT_EQ(*list[2].get_if<double>(), 1.0);
  EXPECT_EQ(*list[3].get_if<std::uint64_t>(), std::numeric_limits<std::uint64_t>::max());
  EXPECT_EQ(*list[4].get_if<std::int64_t>(), std::numeric_limits<std::int64_t>::min());
}

TEST(Json, GivesBackWhatItWrote) {
  const std::string text =
      R"({"a":[1,-2,0.1,1e+300,2.0,true,false,null],"b":{"c":"ä \" \\ \u0001"},"d":[],"e":{},"f":18446744073709551615})";
  const Json json = parse_json(text, "x");
  EXPECT_EQ(json.dump(), text);
  EXPECT_EQ(parse_json(json.dump(), "x"), json);
  EXPECT_EQ(parse_json(json.dump(2), "x"), json);
}

TEST(Json, WritesNumbersThatAreNotFiniteAsNull) {
  EXPECT_EQ(Json(std::nan("")).dump(), "null");
  EXPECT_EQ(Json(std::numeric_limits<double>::infinity()).dump(), "null");
}

TEST(Json, KeepsTheOrderOfMembers) { EXPECT_EQ(parse_json(R"({"b":1,"a":2})", "x").dump(), R"({"b":1,"a":2})"); }

TEST(Json, RefusesAKeyThatIsGivenTwiceAndNamesItsPath) {
  EXPECT_THAT(
      message_of<ConfigError>([] { (void)parse_json(R"({"a": {"b": 1, "c": [{"d": 1}], "b": 2}})", "f.json"); }),
      AllOf(HasSubstr("f.json"), HasSubstr("a.b"), HasSubstr("twice")));
}

TEST(Json, AllowsOneKeyInTwoObjects) { EXPECT_NO_THROW((void)parse_json(R"({"a": {"k": 1}, "b": {"k": 2}})", "x")); }

TEST(Json, RefusesDeepNestingAtTheLimitAndFarBeyondIt) {
  EXPECT_NO_THROW((void)parse_json(nested_lists(kJsonMaxDepth), "x"));
  for (const std::size_t depth : {kJsonMaxDepth + 1, std::size_t{500'000}}) {
    EXPECT_THAT(message_of<ConfigError>([depth] { (void)parse_json(nested_lists(depth), "x"); }),
                HasSubstr("nested deeper than 8"));
  }
}

TEST(Json, RefusesATextThatIsTooLarge) {
  std::string text = "[" + std::string(kJsonMaxBytes - 2, ' ') + "]";
  EXPECT_NO_THROW((void)parse_json(text, "x"));
  text += ' ';
  EXPECT_THAT(message_of<ConfigError>([&] { (void)parse_json(text, "x"); }), HasSubstr("larger than"));
}

TEST(Json, RefusesAnObjectOfTooManyMembers) {
  std::string text = "{";
  for (std::size_t i = 0; i <= kJsonMaxMembers; ++i) {
    text += (i == 0 ? "\"" : ",\"") + std::to_string(i) + "\":0";
  }
  EXPECT_THAT(message_of<ConfigError>([&] { (void)parse_json(text + "}", "x"); }), HasSubstr("more than 1000 keys"));
}

TEST(Json, SaysWhereATextIsNoJson) {
  EXPECT_THAT(message_of<ConfigError>([] { (void)parse_json("{\n  \"a\": }", "f.json"); }),
              AllOf(HasSubstr("f.json: not valid JSON"), HasSubstr("line 2")));
  for (const char* text : {"", "{", "{} {}", "nul", "1e999", "\"\xFF\"", "{'a': 1}", "[1,]"}) {
    EXPECT_THROW((void)parse_json(text, "x"), ConfigError) << text;
  }
}

TEST(Json, DescribesAValueForMessages) {
  EXPECT_EQ(Json(Json::Object()).describe(), "an object");
  EXPECT_EQ(Json(Json::Array()).describe(), "a list");
  EXPECT_EQ(Json("x").describe(), "text \"x\"");
  EXPECT_EQ(Json::of_integer(-3).describe(), "number -3");
  EXPECT_EQ(Json(true).describe(), "true");
  EXPECT_EQ(Json().describe(), "null");
}

TEST(Json, CutsALongTextBetweenCharacters) {
  std::string umlauts;
  for (int i = 0; i < 100; ++i) {
    umlauts += "ä";
  }
  const std::string shown = Json(umlauts).describe();
  EXPECT_LT(shown.size(), 60U);
  EXPECT_THAT(shown, ::testing::EndsWith("…"));
  EXPECT_NO_THROW((void)parse_json(Json(shown).dump(), "x")) << "half a character was left";
}

}  // namespace
}  // namespace spillway::app::json_test
