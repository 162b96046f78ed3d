// Every compiled tiling of the product against the definition, over sizes that fill no tile, no
// stage and no block of scales.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "ops/matmul/matmul.h"
#include "ops/matmul/sm90/fitted_gemm.h"
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

constexpr Scaling kScalings[] = {Scaling::kNone, Scaling::kVector, Scaling::kBlock};

// Rounding of bf16 results and of sums in another order. Tensor cores keep about 14 bits of an fp8
// sum and cut the rest off, so that its error grows with K, or with what shares a scale.
double Bound(Scaling scaling, int64_t k) {
  if (scaling == Scaling::kNone) return 3e-3;
  const int64_t summed = scaling == Scaling::kBlock ? std::min(k, kScaleColumns) : k;
  return 3e-3 + 1.5e-5 * static_cast<double>(summed);
}

class TilingsTest : public GpuTest {
 protected:
  struct Operand {
    DeviceArray<std::byte> device;
    std::vector<float> values;  // what the codes stand for, without scales
  };
  Operand Random(int64_t rows, int64_t k, Scaling scaling, uint64_t seed) {
    std::vector<float> values = RandomNormals(static_cast<size_t>(rows * k), seed);
    if (scaling == Scaling::kNone) {
      values = Rounded(std::move(values), DType::kBF16);
      return {ToDevice(values, DType::kBF16), values};
    }
    std::vector<std::byte> codes(values.size());
    for (size_t i = 0; i < values.size(); ++i) {
      const uint8_t code = FloatToF8E4M3(values[i]);
      codes[i] = std::byte{code};
      values[i] = F8E4M3ToFloat(code);
    }
    return {ToDevice(codes), values};
  }
  static void Scale(std::vector<float>& rows, const std::vector<float>& scales) {
    const size_t width = rows.size() / scales.size();
    for (size_t i = 0; i < rows.size(); ++i) rows[i] *= scales[i / width];
  }
  // Scales [⌈K/128⌉, stride], one for `rows_a_scale` rows.
  static void ScaleBlocks(std::vector<float>& rows, const std::vector<float>& scales, int64_t k,
                          int64_t stride, int64_t rows_a_scale) {
    for (size_t i = 0; i < rows.size(); ++i) {
      const int64_t row = static_cast<int64_t>(i) / k, column = static_cast<int64_t>(i) % k;
      rows[i] *= scales[static_cast<size_t>(column / kScaleColumns * stride + row / rows_a_scale)];
    }
  }
  static std::vector<float> Scales(int64_t count, uint64_t seed) {
    Rng rng(seed);
    std::vector<float> scales(static_cast<size_t>(count));
    for (float& scale : scales) scale = 0.5f + rng.NextFloat();
    return scales;
  }

  // All tilings at one size.
  void Check(Scaling scaling, const Size& size) {
    const bool blocks = scaling == Scaling::kBlock;
    const int64_t blocks_of_k = CeilDiv<int64_t>(size.k, kScaleColumns);
    const int64_t x_stride = AlignUp(size.t, kXScaleRows), w_stride = BlockScaleStride(size.n);
    Operand x = Random(size.t, size.k, scaling, 1), w = Random(size.n, size.k, scaling, 2);
    const std::vector<float> x_scale = Scales(blocks ? blocks_of_k * x_stride : size.t, 3);
    const std::vector<float> w_scale = Scales(blocks ? blocks_of_k * w_stride : size.n, 4);
    const std::vector<float> bias = RandomNormals(static_cast<size_t>(size.n), 5);
    const auto x_scale_device = ToDevice(x_scale), w_scale_device = ToDevice(w_scale);
    const auto bias_device = ToDevice(bias);
    GemmArgs args{.out_dtype = size.out,
                  .out_stride = size.n + size.extra_stride,
                  .x = x.device.data(),
                  .w = w.device.data(),
                  .bias = size.bias ? bias_device.data() : nullptr,
                  .x_scale = x_scale_device.data(),
                  .w_scale = w_scale_device.data(),
                  .x_scale_stride = x_stride,
                  .w_scale_stride = w_stride,
                  .t = size.t,
                  .n = size.n,
                  .k = size.k,
                  .scaling = scaling};
    if (blocks) {
      ScaleBlocks(x.values, x_scale, size.k, x_stride, 1);
      ScaleBlocks(w.values, w_scale, size.k, w_stride, kScaleColumns);
    } else if (scaling == Scaling::kVector) {
      Scale(x.values, x_scale);
      Scale(w.values, w_scale);
    }
    std::vector<float> expected(static_cast<size_t>(size.t * size.n));
    MatmulReference(expected.data(), x.values.data(), w.values.data(),
                    size.bias ? bias.data() : nullptr, size.t, size.n, size.k);
    const auto expect = [&](const ::testing::Message& tiling, const auto& launch) {
      const auto out = Poisoned(static_cast<size_t>(size.t * args.out_stride), size.out);
      args.out = out.data();
      launch();
      ExpectClose(FloatsToHost(out, size.out), expected, size, Bound(scaling, size.k),
                  ::testing::Message() << tiling << ": scaling " << static_cast<int>(scaling)
                                       << " N " << size.n << " K " << size.k << " T " << size.t);
    };
    for (const FittedVariant& variant : FittedVariants(scaling)) {
      const FittedTiling& tiling = variant.tiling;
      if (tiling.parts == 2 && size.k * (scaling == Scaling::kNone ? 2 : 1) <= 128) continue;
      expect(::testing::Message() << "fitted " << tiling.tile_n << " x " << tiling.tile_t << " in "
                                  << tiling.parts,
             [&] { FittedGemm(stream_, args, tiling); });
    }
    const NanTokens nan_tokens = NansOf(scaling, size);
    for (const GemmShape shape : {GemmShape::kNarrow, GemmShape::kWide}) {
      for (const GemmVariant& variant : VariantsOf(scaling, shape)) {
        const GemmTiling& tiling = variant.tiling;
        // Every part needs a stage of K.
        const int64_t row_bytes = size.k * (scaling == Scaling::kNone ? 2 : 1);
        if (tiling.parts > 1 && row_bytes <= variant.boxes.blocks * kRowBytes) continue;
        expect(::testing::Message()
                   << (shape == GemmShape::kNarrow ? "narrow " : "wide ") << tiling.tile_n << " x "
                   << tiling.tile_t << (tiling.in_order ? " in order" : "")
                   << (tiling.parts > 1 ? " in parts" : ""),
               [&] {
                 if (size.t < tiling.tile_t) LeaveNans(args, nan_tokens, tiling);
                 GemmWithTiling(stream_, args, tiling);
               });
      }
    }
  }

  // As many tokens as the largest tile has, all NaN.
  struct NanTokens {
    DeviceArray<std::byte> x;
    DeviceArray<float> x_scale;
    DeviceArray<std::byte> out;
  };
  NanTokens NansOf(Scaling scaling, const Size& size) {
    const int64_t t = kXScaleRows, blocks_of_k = CeilDiv<int64_t>(size.k, kScaleColumns);
    const auto values = static_cast<size_t>(t * size.k);
    constexpr std::byte kE4m3Nan{0x7F};
    const float nan = std::numeric_limits<float>::quiet_NaN();
    return {.x = scaling == Scaling::kNone ? ToDevice(std::vector<float>(values, nan), DType::kBF16)
                                           : ToDevice(std::vector<std::byte>(values, kE4m3Nan)),
            .x_scale = ToDevice(Scales(scaling == Scaling::kBlock ? blocks_of_k * t : t, 8)),
            .out = Poisoned(static_cast<size_t>(t * (size.n + size.extra_stride)), size.out)};
  }
  // In the rows of shared memory that a launch of fewer tokens does not write.
  void LeaveNans(GemmArgs args, const NanTokens& nans, const GemmTiling& tiling) {
    args.t = tiling.tile_t;
    args.x = nans.x.data();
    args.x_scale = nans.x_scale.data();
    args.x_scale_stride = kXScaleRows;
    args.out = nans.out.data();
    GemmWithTiling(stream_, args, tiling);
  }

  static void ExpectClose(const std::vector<float>& out, const std::vector<float>& expected,
                          const Size& size, double bound, const ::testing::Message& where) {
    const int64_t stride = size.n + size.extra_stride;
    double difference = 0, norm = 0;
    int64_t past_the_end = 0;
    for (int64_t row = 0; row < size.t; ++row) {
      for (int64_t i = 0; i < stride; ++i) {
        const double value = out[static_cast<size_t>(row * stride + i)];
        if (i >= size.n) {
          past_the_end += std::isnan(value) ? 0 : 1;
          continue;
        }
        const double wanted = expected[static_cast<size_t>(row * size.n + i)];
        difference += (value - wanted) * (value - wanted);
        norm += wanted * wanted;
      }
    }
    EXPECT_EQ(past_the_end, 0) << where;
    EXPECT_LT(std::sqrt(difference / norm), bound) << where;  // NaN passes no compare
  }

  // Of launches one after the other, bf16.
  template <typename Launch>
  void ExpectSameSums(const Size& size, const Launch& launch) {
    const Operand x = Random(size.t, size.k, Scaling::kNone, 6);
    const Operand w = Random(size.n, size.k, Scaling::kNone, 7);
    std::vector<float> first;
    for (int round = 0; round < 20; ++round) {
      const auto out = Poisoned(static_cast<size_t>(size.t * size.n), DType::kF32);
      launch(GemmArgs{.out = out.data(),
                      .out_dtype = DType::kF32,
                      .out_stride = size.n,
                      .x = x.device.data(),
                      .w = w.device.data(),
                      .t = size.t,
                      .n = size.n,
                      .k = size.k});
      const std::vector<float> sums = FloatsToHost(out, DType::kF32);
      if (round == 0) first = sums;
      ASSERT_EQ(sums, first);
    }
  }
};

TEST_F(TilingsTest, EveryTilingMultipliesAsItsDefinition) {
  for (const Scaling scaling : kScalings) {
    for (const Size& size :
         {Size{.n = 64, .k = 64, .t = 1}, Size{.n = 96, .k = 2064, .t = 9, .bias = true},
          Size{.n = 264, .k = 1200, .t = 64}, Size{.n = 200, .k = 80, .t = 31, .bias = true},
          Size{.n = 264, .k = 1024, .t = 5}, Size{.n = 200, .k = 1152, .t = 17},
          Size{.n = 136, .k = 1024, .t = 65, .bias = true}, Size{.n = 264, .k = 1920, .t = 100},
          Size{.n = 72, .k = 1024, .t = 128}, Size{.n = 333, .k = 656, .t = 130, .extra_stride = 3},
          Size{.n = 336, .k = 1200, .t = 257, .extra_stride = 8, .bias = true},
          Size{.n = 520, .k = 272, .t = 383, .out = DType::kF32},
          Size{.n = 384, .k = 144, .t = 449},
          Size{.n = 136, .k = 2064, .t = 512, .out = DType::kF32, .bias = true},
          Size{.n = 40, .k = 512, .t = 520}}) {
      Check(scaling, size);
    }
  }
}

// More tiles than multiprocessors: blocks go on to the next one while the copy engine still stores.
TEST_F(TilingsTest, BlocksOfManyTilesStoreThemAll) {
  for (const Scaling scaling : kScalings) Check(scaling, {.n = 13'000, .k = 144, .t = 300});
}

TEST_F(TilingsTest, SumsOfTwoPartsAreAlwaysTheSame) {
  ExpectSameSums({.n = 512, .k = 4096, .t = 320}, [&](const GemmArgs& args) {
    FittedGemm(stream_, args, {.tile_n = 128, .tile_t = 160, .cluster = 1, .parts = 2});
  });
}

// Whichever of the pair is first, and with more pairs than fit at a time.
TEST_F(TilingsTest, NarrowTilesInTwoPartsAlwaysSumTheSame) {
  for (const GemmVariant& variant : VariantsOf(Scaling::kNone, GemmShape::kNarrow)) {
    if (variant.tiling.parts == 1) continue;
    SCOPED_TRACE(variant.tiling.tile_n);
    ExpectSameSums({.n = 8192, .k = 2064, .t = 100},
                   [&](const GemmArgs& args) { GemmWithTiling(stream_, args, variant.tiling); });
  }
}

TEST_F(TilingsTest, HundredsOfTokensAreFittedUnlessOthersAreFasterOrTheOrderIsFixed) {
  constexpr double kLong = 1e9;
  GemmArgs args{.n = 28'672, .k = 4096, .scaling = Scaling::kVector};
  for (const int64_t t : {129, 320, 512}) {
    args.t = t;
    args.order = SumOrder::kFastest;
    EXPECT_TRUE(ChooseFitted(args, 132, kLong)) << t;
    EXPECT_FALSE(ChooseFitted(args, 132, 1)) << t;
    args.order = SumOrder::kFixed;
    EXPECT_FALSE(ChooseFitted(args, 132, kLong)) << t;
  }
  args.order = SumOrder::kFastest;
  args.t = 320;
  EXPECT_EQ(ChooseFitted(args, 132, kLong)->tile_t, 160);
  args.scaling = Scaling::kBlock;
  EXPECT_FALSE(ChooseFitted(args, 132, kLong));
}

}  // namespace
}  // namespace hayate::ops::sm90
