#include "ops/activation/clamped_swiglu.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/rng.h"

namespace hayate::ops {
namespace {

TEST(ClampedSwiGlu, ClampedFormsMatchDoubleArithmetic) {
  const SwiGluForm forms[] = {{.limit = 7.0f, .alpha = 1.702f, .up_shift = 1.0f},
                              {.limit = 10.0f},
                              {.alpha = 0.5f, .up_shift = -2.0f},
                              {}};
  for (const ClampedSwiGluKernel& kernel : AllClampedSwiGluKernels()) {
    if (!kernel.runs_on(DetectCpuFeatures())) continue;
    for (const SwiGluForm& form : forms) {
      for (const int64_t width : {1, 8, 15, 33, 200}) {
        Rng rng(static_cast<uint64_t>(width));
        std::vector<float> gate(static_cast<size_t>(width)), up(gate.size()), out(gate.size());
        for (float& value : gate) value = 8.0f * rng.NextNormal();
        for (float& value : up) value = 8.0f * rng.NextNormal();
        kernel.row(out.data(), gate.data(), up.data(), width, form);
        for (size_t i = 0; i < out.size(); ++i) {
          const double limit = form.limit > 0 ? double{form.limit} : 1e30;
          const double g = std::min<double>(gate[i], limit);
          const double u = std::clamp<double>(up[i], -limit, limit) + form.up_shift;
          const double silu = g / (1.0 + std::exp(-double{form.alpha} * g));
          // Roundings as in the plain form, that of alpha · g (at most 60) in the exponent, and the
          // shifted up's, which may cancel.
          ASSERT_NEAR(out[i], silu * u, std::abs(silu) * (6e-6 * std::abs(u) + 1e-6))
              << kernel.name << " " << gate[i] << " " << up[i];
        }
      }
    }
  }
}

TEST(ClampedSwiGlu, ClampingKeepsNaN) {
  for (const ClampedSwiGluKernel& kernel : AllClampedSwiGluKernels()) {
    if (!kernel.runs_on(DetectCpuFeatures())) continue;
    const float gate[] = {std::nanf(""), 1.0f}, up[] = {1.0f, std::nanf("")};
    float out[2];
    kernel.row(out, gate, up, 2, {.limit = 7.0f});
    EXPECT_TRUE(std::isnan(out[0]) && std::isnan(out[1])) << kernel.name;
  }
}

}  // namespace
}  // namespace hayate::ops
