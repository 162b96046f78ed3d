// Every compiled wide tiling under block scales against a narrow one, bit by bit: both sum in order
// of K. The narrow ones are held to the definition by matmul_gpu_test.cc.

#include <gtest/gtest.h>

#include <cmath>

#include "base/align.h"
#include "ops/matmul/sm90/gemm.h"
#include "ops/matmul/sm90/gemm_variants.h"
#include "ops/testing/gpu.h"

namespace hayate::ops::sm90 {
namespace {

using namespace ops::testing;

struct Size {
  int64_t n, k, t;
  DType out = DType::kBF16;
  int64_t extra_stride = 0;
  bool bias = false;
};

class WideBlockGemmTest : public GpuTest {
 protected:
  DeviceArray<uint8_t> Codes(int64_t count, uint64_t seed) {
    std::vector<uint8_t> codes;
    for (const float value : RandomNormals(static_cast<size_t>(count), seed)) {
      codes.push_back(FloatToF8E4M3(value));
    }
    return ToDevice(codes);
  }
  DeviceArray<float> Scales(int64_t count, uint64_t seed) {
    Rng rng(seed);
    std::vector<float> scales(static_cast<size_t>(count));
    for (float& scale : scales) scale = 0.5f + rng.NextFloat();
    return ToDevice(scales);
  }

  void Check(const Size& size) {
    const int64_t blocks = CeilDiv<int64_t>(size.k, kScaleColumns);
    const auto x = Codes(size.t * size.k, 1), w = Codes(size.n * size.k, 2);
    const int64_t x_stride = AlignUp<int64_t>(size.t, kXScaleRows);
    const int64_t w_stride = BlockScaleStride(size.n);
    const auto x_scale = Scales(blocks * x_stride, 3), w_scale = Scales(blocks * w_stride, 4);
    const auto bias = ToDevice(RandomNormals(static_cast<size_t>(size.n), 5));
    GemmArgs args{.out_dtype = size.out,
                  .out_stride = size.n + size.extra_stride,
                  .x = x.data(),
                  .w = w.data(),
                  .bias = size.bias ? bias.data() : nullptr,
                  .x_scale = x_scale.data(),
                  .w_scale = w_scale.data(),
                  .x_scale_stride = x_stride,
                  .w_scale_stride = w_stride,
                  .t = size.t,
                  .n = size.n,
                  .k = size.k,
                  .scaling = Scaling::kBlock};
    const GemmTiling narrow{GemmShape::kNarrow, 64, 64, 2};
    const std::vector<std::byte> expected = Run(args, size, narrow);
    for (const GemmVariant& variant : VariantsOf(Scaling::kBlock, GemmShape::kWide)) {
      const GemmTiling& tiling = variant.tiling;
      EXPECT_TRUE(Run(args, size, tiling) == expected)
          << tiling.tile_n << " x " << tiling.tile_t << ", clusters of " << tiling.cluster << ": N "
          << size.n << " K " << size.k << " T " << size.t;
    }
  }

  // With what lies between the rows.
  std::vector<std::byte> Run(GemmArgs& args, const Size& size, const GemmTiling& tiling) {
    const auto out = Poisoned(static_cast<size_t>(size.t * args.out_stride), size.out);
    args.out = out.data();
    GemmWithTiling(stream_, args, tiling);
    return ToHost(out);
  }
};

TEST_F(WideBlockGemmTest, EveryTilingSumsAsNarrowOnes) {
  for (const Size& size :
       {Size{.n = 128, .k = 128, .t = 1}, Size{.n = 200, .k = 80, .t = 31, .bias = true},
        Size{.n = 333, .k = 656, .t = 130, .extra_stride = 3},
        Size{.n = 336, .k = 1200, .t = 257, .extra_stride = 8, .bias = true},
        Size{.n = 1000, .k = 1104, .t = 513, .out = DType::kF32},
        Size{.n = 40, .k = 4096, .t = 128, .out = DType::kF32, .bias = true}}) {
    Check(size);
  }
}

// More tiles than multiprocessors: a tile is stored while the next one is multiplied.
TEST_F(WideBlockGemmTest, BlocksOfManyTilesStoreThemAll) {
  Check({.n = 13'000, .k = 144, .t = 300});
  Check({.n = 2176, .k = 400, .t = 2500, .bias = true});
}

}  // namespace
}  // namespace hayate::ops::sm90
