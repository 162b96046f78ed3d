#include <gtest/gtest.h>

#include <cmath>

#include "ops/norm/rms_norm.h"
#include "ops/testing/gpu.h"

namespace hayate::ops {
namespace {

using namespace testing;

class RmsNormGpu : public GpuTest {};

// Two sums of `width` squares in different orders, a rounding of the result, a few more.
void ExpectNear(const std::vector<float>& got, const std::vector<float>& expected, int64_t width,
                DType dtype, const std::string& what) {
  const double relative = Epsilon(dtype) + (static_cast<double>(width) + 8) * 0x1p-24;
  ASSERT_EQ(got.size(), expected.size());
  for (size_t i = 0; i < got.size(); ++i) {
    ASSERT_NEAR(got[i], expected[i], std::abs(expected[i]) * relative) << what << " at " << i;
  }
}

constexpr int64_t kWidths[] = {1, 8, 100, 577, 576, 1000, 4096, 5120, 8192, 16384, 20000};

TEST_F(RmsNormGpu, MatchesTheReferenceAtAnyWidthAndType) {
  for (const int64_t width : kWidths) {
    for (const DType x_type : {DType::kF32, DType::kBF16}) {
      for (const DType out_type : {DType::kF32, DType::kBF16}) {
        constexpr int64_t kRows = 5;
        const auto count = static_cast<size_t>(kRows * width);
        std::vector<float> x = Rounded(RandomNormals(count, 1), x_type),
                           residual = RandomNormals(count, 2),
                           weight = RandomNormals(static_cast<size_t>(width), 3), expected(count);
        const std::string what = std::string(Info(x_type).name) + " " + std::to_string(width);
        const auto x_array = ToDevice(x, x_type), out = Poisoned(count, out_type);
        const auto weight_array = ToDevice(weight);
        const Shape shape{kRows, width};
        RmsNorm(stream_, {.out = out.View(out_type, shape),
                          .x = x_array.View(x_type, shape),
                          .weight = weight_array.data()});
        RmsNormReference({HostView(expected, kRows), HostView(x, kRows), weight.data()});
        ExpectNear(FloatsToHost(out, out_type), expected, width, out_type, what);

        const auto residual_array = ToDevice(residual);
        const auto added = Poisoned(count, out_type);
        AddRmsNorm(stream_, {.residual = residual_array.View(DType::kF32, shape),
                             .x = x_array.View(x_type, shape),
                             .out = added.View(out_type, shape),
                             .weight = weight_array.data()});
        AddRmsNormReference({HostView(residual, kRows), HostView(x, kRows),
                             HostView(expected, kRows), weight.data()});
        EXPECT_EQ(ToHost(residual_array), residual) << what;
        ExpectNear(FloatsToHost(added, out_type), expected, width, out_type, what);
      }
    }
  }
}

TEST_F(RmsNormGpu, Fp8RowsAreTheResultQuantised) {
  for (const Fp8Scaling scaling : {Fp8Scaling::kPerGroup, Fp8Scaling::kPerToken}) {
    for (const int64_t width : {128, 640, 4096, 5120, 8192}) {
      constexpr int64_t kRows = 7, kPadded = 8;
      const int64_t groups = scaling == Fp8Scaling::kPerGroup ? width / kFp8GroupColumns : 1;
      const auto count = static_cast<size_t>(kRows * width);
      std::vector<float> x = RandomNormals(count, 4);
      for (int64_t i = 0; i < width; ++i) x[static_cast<size_t>(width + i)] = 0.0f;
      const auto x_array = ToDevice(x);
      const auto weight = ToDevice(RandomNormals(static_cast<size_t>(width), 5));
      const auto out = Poisoned<float>(count);
      const auto codes = Poisoned<uint8_t>(count);
      const auto scales = Poisoned<float>(static_cast<size_t>(groups * kPadded));
      const Shape shape{kRows, width};
      Fp8Rows fp8 = {.codes = codes.data(),
                     .scales = scales.data(),
                     .scaling = scaling,
                     .row_stride = 1,
                     .group_stride = kPadded};
      RmsNorm(stream_, {.out = out.View(DType::kF32, shape),
                        .x = x_array.View(DType::kF32, shape),
                        .weight = weight.data(),
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
      for (int64_t g = 0; g < groups; ++g) {
        for (int64_t t = 0; t < kRows; ++t) {
          const auto at = static_cast<size_t>(g * kPadded + t);
          EXPECT_EQ(got_scales[at], expected_scales[at]) << width << " " << t << " " << g;
        }
      }
    }
  }
}

TEST_F(RmsNormGpu, ARowIsTheSameBitsInAnyBatch) {
  constexpr int64_t kRows = 300, kWidth = 4096;
  const std::vector<float> x = RandomNormals(kRows * kWidth, 6);
  const auto weight = ToDevice(RandomNormals(kWidth, 7));
  const auto all = ToDevice(x), out = Poisoned<float>(x.size());
  RmsNorm(stream_, {.out = out.View(DType::kF32, {kRows, kWidth}),
                    .x = all.View(DType::kF32, {kRows, kWidth}),
                    .weight = weight.data()});
  const std::vector<float> together = ToHost(out);
  for (const int64_t t : {0, 150, 299}) {
    const auto one = Poisoned<float>(kWidth);
    RmsNorm(stream_, {.out = one.View(DType::kF32, {1, kWidth}),
                      .x = all.View(DType::kF32, {kRows, kWidth}).Slice(t, t + 1),
                      .weight = weight.data()});
    const std::vector<float> alone = ToHost(one);
    EXPECT_TRUE(std::equal(alone.begin(), alone.end(), together.begin() + t * kWidth)) << t;
  }
}

}  // namespace
}  // namespace hayate::ops
