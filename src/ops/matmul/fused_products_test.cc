#include <gtest/gtest.h>

#include <vector>

#include "base/rng.h"
#include "ops/matmul/matmul_add_norm.h"
#include "ops/matmul/matmul_swiglu.h"
#include "ops/matmul/testing/random_weights.h"

namespace hayate::ops {
namespace {

using matmul::RandomWeights;

std::vector<float> Normals(int64_t count, uint64_t seed) {
  Rng rng(seed);
  std::vector<float> values(static_cast<size_t>(count));
  for (float& value : values) value = rng.NextNormal();
  return values;
}
TensorView View(std::vector<float>& values, int64_t rows) {
  return {reinterpret_cast<std::byte*>(values.data()), DType::kF32,
          Shape{rows, static_cast<int64_t>(values.size()) / rows}};
}

// On the CPU the joined operators are their parts one after the other, and leave nothing to do.
TEST(FusedProducts, AreTheirPartsOneAfterTheOther) {
  constexpr int64_t kTokens = 3, kK = 96, kWidth = 40;
  const auto device = MakeCpuDevice(0);
  const Stream stream{device.get()};
  Workspace workspace(Buffer::Allocate(*device, size_t{1} << 20).value());
  const RandomWeights weights(DType::kBF16, 2 * kWidth, kK, 1);
  const MatrixPiece piece = MatrixPiece::Whole(weights.view());
  const PackedMatrix w = PackMatrix(*device, {&piece, 1}, MatmulPrecision::kExact).value();
  std::vector<float> x = Normals(kTokens * kK, 2), product(kTokens * 2 * kWidth);
  const MatmulArgs args = {.out = View(product, kTokens), .x = View(x, kTokens), .w = &w};
  Matmul(stream, workspace, args);

  std::vector<float> gated(kTokens * kWidth), expected_gated = gated;
  SwiGlu(stream, {.out = View(expected_gated, kTokens), .gate_up = View(product, kTokens)});
  const std::vector<float> norm = Normals(2 * kWidth, 3);
  std::vector<float> residual = Normals(kTokens * 2 * kWidth, 4), expected_residual = residual;
  std::vector<float> normed(residual.size()), expected_normed = normed;
  AddRmsNorm(stream, {.residual = View(expected_residual, kTokens),
                      .x = View(product, kTokens),
                      .out = View(expected_normed, kTokens),
                      .weight = norm.data()});

  MatmulSwiGlu(
      stream, workspace,
      {.product = args, .glu = {.out = View(gated, kTokens), .gate_up = View(product, kTokens)}});
  EXPECT_EQ(gated, expected_gated);
  std::vector<float> squares(static_cast<size_t>(DeferredNormFloats(2 * kWidth)));
  const DeferredNorm left = MatmulAddNorm(stream, workspace,
                                          {.product = args,
                                           .norm = {.residual = View(residual, kTokens),
                                                    .x = View(product, kTokens),
                                                    .out = View(normed, kTokens),
                                                    .weight = norm.data()},
                                           .next = &w,
                                           .squares = squares.data()});
  EXPECT_FALSE(left.pending());
  EXPECT_EQ(residual, expected_residual);
  EXPECT_EQ(normed, expected_normed);
}

}  // namespace
}  // namespace hayate::ops
