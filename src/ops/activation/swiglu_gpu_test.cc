#include <gtest/gtest.h>

#include <cmath>

#include "ops/activation/swiglu.h"
#include "ops/testing/gpu.h"

namespace hayate::ops {
namespace {

using namespace testing;

class SwiGluGpu : public GpuTest {};

TEST_F(SwiGluGpu, MatchesTheReferenceAtAnyWidthAndType) {
  for (const int64_t width : {1, 8, 77, 1536, 2056, 12288, 28672}) {
    for (const DType type : {DType::kF32, DType::kBF16}) {
      constexpr int64_t kRows = 3;
      const auto count = static_cast<size_t>(kRows * width);
      std::vector<float> gate_up = Rounded(RandomNormals(2 * count, 1), type), expected(count);
      for (float& value : gate_up) value *= 4.0f;
      gate_up[0] = -100.0f;
      const auto in = ToDevice(gate_up, type), out = Poisoned(count, type);
      SwiGlu(stream_,
             {.out = out.View(type, {kRows, width}), .gate_up = in.View(type, {kRows, 2 * width})});
      SwiGluReference({.out = HostView(expected, kRows), .gate_up = HostView(gate_up, kRows)});
      const std::vector<float> got = FloatsToHost(out, type);
      // The exponential is good to a few units of the last place of fp32.
      const double relative = Epsilon(type) + 16 * 0x1p-23;
      for (size_t i = 0; i < count; ++i) {
        ASSERT_NEAR(got[i], expected[i], std::abs(expected[i]) * relative + 1e-30)
            << Info(type).name << " " << width << " at " << i;
      }
    }
  }
}

TEST_F(SwiGluGpu, Fp8RowsAreTheResultQuantised) {
  for (const Fp8Scaling scaling : {Fp8Scaling::kPerGroup, Fp8Scaling::kPerToken}) {
    for (const int64_t width : {128, 2176, 14336, 28672}) {
      constexpr int64_t kRows = 3;
      const int64_t groups = scaling == Fp8Scaling::kPerGroup ? width / kFp8GroupColumns : 1;
      const auto count = static_cast<size_t>(kRows * width);
      const auto in = ToDevice(RandomNormals(2 * count, 2));
      const auto out = Poisoned<float>(count);
      const auto codes = Poisoned<uint8_t>(count);
      const auto scales = Poisoned<float>(static_cast<size_t>(kRows * groups));
      Fp8Rows fp8 = {.codes = codes.data(),
                     .scales = scales.data(),
                     .scaling = scaling,
                     .row_stride = groups,
                     .group_stride = 1};
      SwiGlu(stream_, {.out = out.View(DType::kF32, {kRows, width}),
                       .gate_up = in.View(DType::kF32, {kRows, 2 * width}),
                       .fp8 = fp8});
      const std::vector<float> values = ToHost(out), got_scales = ToHost(scales);
      const std::vector<uint8_t> got = ToHost(codes);
      std::vector<uint8_t> expected(count);
      std::vector<float> expected_scales(got_scales.size());
      fp8.codes = expected.data(), fp8.scales = expected_scales.data();
      for (int64_t t = 0; t < kRows; ++t) {
        QuantizeRowReference(values.data() + t * width, width, t, fp8);
      }
      EXPECT_EQ(got, expected) << width;
      EXPECT_EQ(got_scales, expected_scales) << width;
    }
  }
}

}  // namespace
}  // namespace hayate::ops
