#include "ops/norm/layer_norm.h"

#include <gtest/gtest.h>

#include <vector>

namespace hayate::ops {
namespace {

TEST(LayerNorm, CentresAndScalesEachRowInPlace) {
  std::vector<float> x = {1, 2, 3, 4, -10, 10, -10, 10};
  const float weight[] = {1, 2, 1, 1}, bias[] = {0, 0, 5, 0};
  const TensorView view{reinterpret_cast<std::byte*>(x.data()), DType::kF32, {2, 4}};
  LayerNorm({}, {.out = view, .x = view, .weight = weight, .bias = bias, .eps = 0.0f});
  const float root = 0.44721360f;  // 1 / (2 √1.25)
  const float want[] = {-3 * root, -2 * root, 5 + root, 3 * root, -1, 2, 4, 1};
  for (size_t i = 0; i < 8; ++i) EXPECT_NEAR(x[i], want[i], 1e-6f) << i;
}

TEST(LayerNorm, AConstantRowGivesTheBias) {
  std::vector<float> x = {7, 7, 7};
  const float weight[] = {1, 2, 3}, bias[] = {0.5f, -1, 2};
  const TensorView view{reinterpret_cast<std::byte*>(x.data()), DType::kF32, {1, 3}};
  LayerNorm({}, {.out = view, .x = view, .weight = weight, .bias = bias});
  EXPECT_EQ(x, (std::vector<float>{0.5f, -1, 2}));
}

}  // namespace
}  // namespace hayate::ops
