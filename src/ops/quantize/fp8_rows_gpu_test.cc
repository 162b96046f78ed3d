#include <gtest/gtest.h>

#include "ops/quantize/fp8_rows.h"
#include "ops/testing/gpu.h"

namespace hayate::ops {
namespace {

using namespace testing;

class QuantizeRowsGpu : public GpuTest {};

TEST_F(QuantizeRowsGpu, CodesAndScalesAreTheReferenceToTheBit) {
  for (const DType type : {DType::kF32, DType::kBF16}) {
    for (const Fp8Scaling scaling : {Fp8Scaling::kPerGroup, Fp8Scaling::kPerToken}) {
      for (const int64_t width : {128, 640, 4096, 8192, 16384, 32768}) {
        constexpr int64_t kRows = 4;
        const int64_t groups = scaling == Fp8Scaling::kPerGroup ? width / kFp8GroupColumns : 1;
        const auto count = static_cast<size_t>(kRows * width);
        std::vector<float> x = Rounded(RandomNormals(count, 1), type);
        for (int64_t i = 0; i < width; ++i) x[static_cast<size_t>(i)] *= 1e-15f;
        x = Rounded(x, type);
        const auto in = ToDevice(x, type);
        const auto codes = Poisoned<uint8_t>(count);
        const auto scales = Poisoned<float>(static_cast<size_t>(kRows * groups));
        Fp8Rows fp8 = {.codes = codes.data(),
                       .scales = scales.data(),
                       .scaling = scaling,
                       .row_stride = groups,
                       .group_stride = 1};
        QuantizeRows(stream_, {.out = fp8, .x = in.View(type, {kRows, width})});
        std::vector<uint8_t> expected(count);
        std::vector<float> expected_scales(static_cast<size_t>(kRows * groups));
        const std::vector<uint8_t> got = ToHost(codes);
        const std::vector<float> got_scales = ToHost(scales);
        fp8.codes = expected.data(), fp8.scales = expected_scales.data();
        for (int64_t t = 0; t < kRows; ++t) {
          QuantizeRowReference(x.data() + t * width, width, t, fp8);
        }
        EXPECT_EQ(got, expected) << width;
        EXPECT_EQ(got_scales, expected_scales) << width;
      }
    }
  }
}

}  // namespace
}  // namespace hayate::ops
