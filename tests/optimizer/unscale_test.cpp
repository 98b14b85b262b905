#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

#include <spillway/optimizer/unscale.hpp>

namespace spillway::optimizer::unscale_test {
namespace {

template <typename Element>
constexpr GradientType kTypeOf = GradientType::kFloat32;
template <>
constexpr GradientType kTypeOf<c10::Half> = GradientType::kFloat16;
template <>
constexpr GradientType kTypeOf<c10::BFloat16> = GradientType::kBFloat16;

template <typename Element>
class Unscale : public ::testing::Test {
 protected:
  static GradientSpan span(std::vector<Element>& elements) {
    return {elements.data(), elements.size(), kTypeOf<Element>};
  }
};

using Elements = ::testing::Types<float, c10::Half, c10::BFloat16>;
TYPED_TEST_SUITE(Unscale, Elements);

TYPED_TEST(Unscale, MultipliesEveryElementOfEveryTensor) {
  std::vector<TypeParam> first{TypeParam(3.0F), TypeParam(-8.0F)};
  std::vector<TypeParam> second{TypeParam(0.5F)};
  EXPECT_FALSE(unscale_and_check({this->span(first), this->span(second)}, 0.25F));
  EXPECT_EQ(static_cast<float>(first[0]), 0.75F);
  EXPECT_EQ(static_cast<float>(first[1]), -2.0F);
  EXPECT_EQ(static_cast<float>(second[0]), 0.125F);
}

TYPED_TEST(Unscale, FindsWhatIsNotFiniteAnywhere) {
  for (const float bad : {std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity(),
                          std::numeric_limits<float>::quiet_NaN()}) {
    for (std::size_t place = 0; place < 3; ++place) {
      std::vector<TypeParam> elements(3, TypeParam(1.0F));
      std::vector<TypeParam> clean(2, TypeParam(1.0F));
      elements[place] = TypeParam(bad);
      EXPECT_TRUE(unscale_and_check({this->span(clean), this->span(elements), this->span(clean)}, 0.5F))
          << bad << " at " << place;
    }
  }
}

TYPED_TEST(Unscale, LooksAtTheGradientNotAtTheProduct) {
  std::vector<TypeParam> large{TypeParam(30000.0F)};
  EXPECT_FALSE(unscale_and_check({this->span(large)}, std::numeric_limits<float>::max()));
  EXPECT_TRUE(std::isinf(static_cast<float>(large[0])));
}

TYPED_TEST(Unscale, TakesTensorsOfNoElements) {
  std::vector<TypeParam> none;
  EXPECT_FALSE(unscale_and_check({this->span(none)}, 0.5F));
  EXPECT_FALSE(unscale_and_check({}, 0.5F));
}

TEST(UnscaleOfHalf, RoundsOnceFromFloat) {
  std::vector<c10::Half> elements{c10::Half(1.0F)};
  EXPECT_FALSE(unscale_and_check({{elements.data(), 1, GradientType::kFloat16}}, 1.0F / 3.0F));
  EXPECT_EQ(static_cast<float>(elements[0]), static_cast<float>(c10::Half(1.0F / 3.0F)));
}

}  // namespace
}  // namespace spillway::optimizer::unscale_test
