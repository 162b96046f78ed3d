#include "ops/norm/rms_norm.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "base/rng.h"
#include "ops/norm/detail/kernels.h"

namespace hayate::ops {
namespace {

TensorView View(std::vector<float>& values, int64_t rows) {
  return {reinterpret_cast<std::byte*>(values.data()), DType::kF32,
          Shape{rows, static_cast<int64_t>(values.size()) / rows}};
}

std::vector<float> Normals(int64_t count, uint64_t seed) {
  Rng rng(seed);
  std::vector<float> values(static_cast<size_t>(count));
  for (float& value : values) value = rng.NextNormal();
  return values;
}

// The sum of squares has `width` positive terms: its relative error is below width · 2⁻²⁴, the
// scale's below half of that, plus three roundings.
double Tolerance(int64_t width) { return (static_cast<double>(width) / 2 + 4) * 0x1p-24; }

void ExpectNear(const std::vector<float>& got, const std::vector<float>& expected, int64_t width,
                const char* name) {
  for (size_t i = 0; i < got.size(); ++i) {
    ASSERT_NEAR(got[i], expected[i], std::abs(expected[i]) * Tolerance(width))
        << name << " at " << i;
  }
}

TEST(RmsNorm, EveryKernelMatchesTheReferenceAtOddWidths) {
  for (const NormKernels& kernels : AllNormKernels()) {
    if (!kernels.runs_on(DetectCpuFeatures())) continue;
    for (const int64_t width : {1, 7, 8, 16, 17, 31, 32, 33, 64, 144, 576, 4097}) {
      std::vector<float> x = Normals(width, 1), weight = Normals(width, 2), expected(x.size());
      RmsNormReference({View(expected, 1), View(x, 1), weight.data(), 1e-5f});
      std::vector<float> got(x.size());
      kernels.norm(got.data(), x.data(), weight.data(), 1e-5f, width);
      ExpectNear(got, expected, width, kernels.name);

      std::vector<float> residual = Normals(width, 3), same = residual;
      AddRmsNormReference({View(residual, 1), View(x, 1), View(expected, 1), weight.data(), 1e-5f});
      kernels.add_norm(got.data(), same.data(), x.data(), weight.data(), 1e-5f, width);
      EXPECT_EQ(same, residual) << kernels.name;
      ExpectNear(got, expected, width, kernels.name);
    }
  }
}

TEST(RmsNorm, ARowDoesNotDependOnItsNeighbours) {
  constexpr int64_t kRows = 5, kWidth = 77;
  std::vector<float> x = Normals(kRows * kWidth, 4), weight = Normals(kWidth, 5), all(x.size());
  RmsNorm({}, {View(all, kRows), View(x, kRows), weight.data(), 1e-6f});
  for (int64_t t = 0; t < kRows; ++t) {
    std::vector<float> row(x.begin() + t * kWidth, x.begin() + (t + 1) * kWidth), alone(kWidth);
    RmsNorm({}, {View(alone, 1), View(row, 1), weight.data(), 1e-6f});
    EXPECT_TRUE(std::equal(alone.begin(), alone.end(), all.begin() + t * kWidth));
  }
}

TEST(RmsNorm, ZerosStayZeroAndHugeValuesStayFinite) {
  std::vector<float> x(33, 0.0f), weight(33, 2.0f), out(33);
  RmsNorm({}, {View(out, 1), View(x, 1), weight.data(), 1e-6f});
  EXPECT_EQ(out, std::vector<float>(33, 0.0f));
  x.assign(33, 1e17f);
  RmsNorm({}, {View(out, 1), View(x, 1), weight.data(), 1e-6f});
  for (const float value : out) EXPECT_NEAR(value, 2.0f, 1e-5f);
}

}  // namespace
}  // namespace hayate::ops
