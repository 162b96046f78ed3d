#include "ops/activation/swiglu.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "base/rng.h"
#include "ops/activation/detail/kernels.h"

namespace hayate::ops {
namespace {

TEST(SwiGlu, EveryKernelMatchesDoubleArithmetic) {
  for (const SwiGluKernel& kernel : AllSwiGluKernels()) {
    if (!kernel.runs_on(DetectCpuFeatures())) continue;
    for (const int64_t width : {1, 8, 15, 16, 17, 100, 1536}) {
      Rng rng(static_cast<uint64_t>(width));
      std::vector<float> gate(static_cast<size_t>(width)), up(gate.size()), out(gate.size());
      for (float& value : gate) value = 12.0f * rng.NextNormal();
      for (float& value : up) value = rng.NextNormal();
      kernel.row(out.data(), gate.data(), up.data(), width);
      for (size_t i = 0; i < out.size(); ++i) {
        const double expected = gate[i] / (1.0 + std::exp(-double{gate[i]})) * up[i];
        // Five roundings and the exponential's 2e-7.
        ASSERT_NEAR(out[i], expected, std::abs(expected) * 6e-7) << kernel.name << " " << gate[i];
      }
    }
  }
}

TEST(SwiGlu, ExtremeGatesGiveTheirLimits) {
  for (const SwiGluKernel& kernel : AllSwiGluKernels()) {
    if (!kernel.runs_on(DetectCpuFeatures())) continue;
    const float gate[] = {-1e30f, -200.0f, 0.0f, 200.0f, std::nanf("")};
    const float up[] = {1.0f, 1.0f, 5.0f, 2.0f, 1.0f};
    float out[5];
    kernel.row(out, gate, up, 5);
    EXPECT_LE(std::abs(out[1]), 1e-35f) << kernel.name;
    EXPECT_EQ(out[2], 0.0f);
    EXPECT_EQ(out[3], 400.0f);
    EXPECT_TRUE(std::isnan(out[4])) << kernel.name;
  }
}

TEST(SwiGlu, SplitsEachRowIntoGateAndUp) {
  std::vector<float> gate_up = {1, 2, 3, 4, 5, 6, -1, -2, -3, 7, 8, 9};  // two rows of 3 + 3
  std::vector<float> out(6), expected(6);
  const auto view = [](std::vector<float>& values, int64_t cols) {
    return TensorView{reinterpret_cast<std::byte*>(values.data()), DType::kF32, Shape{2, cols}};
  };
  SwiGlu({}, {view(out, 3), view(gate_up, 6)});
  SwiGluReference({view(expected, 3), view(gate_up, 6)});
  for (size_t i = 0; i < out.size(); ++i) EXPECT_NEAR(out[i], expected[i], 1e-5f);
}

}  // namespace
}  // namespace hayate::ops
