#include <gtest/gtest.h>

#include <cmath>

#include "ops/matmul/sm90/fitted_gemm.h"
#include "ops/matmul/sm90/fused.h"
#include "ops/matmul/sm90/gemm_variants.h"
#include "ops/matmul/testing/random_weights.h"
#include "ops/testing/gpu.h"
#include "weights/dequantize.h"

namespace hayate::ops {
namespace {

using namespace testing;
using matmul::RandomWeights;

constexpr DType kBf16 = DType::kBF16;
constexpr float kEps = 1e-5f;

double RelativeError(const std::vector<float>& out, const std::vector<float>& expected) {
  double difference = 0, norm = 0;
  for (size_t i = 0; i < expected.size(); ++i) {
    const double d = double{out[i]} - double{expected[i]};
    difference += d * d;
    norm += double{expected[i]} * double{expected[i]};
  }
  return std::sqrt(difference / norm);  // NaN passes no compare
}

class FusedProducts : public GpuTest {
 protected:
  void SetUp() override {
    GpuTest::SetUp();
    workspace_.emplace(Buffer::Allocate(*device_, size_t{256} << 20).value());
  }

  PackedMatrix Pack(const RandomWeights& weights,
                    MatmulPrecision precision = MatmulPrecision::kFast) {
    const MatrixPiece piece = MatrixPiece::Whole(weights.view());
    auto packed = PackMatrix(*device_, {&piece, 1}, precision);
    EXPECT_TRUE(packed.ok()) << packed.status().message();
    device_->FinishLoading();
    return std::move(packed).value();
  }
  static std::vector<float> Dequantized(const RandomWeights& weights) {
    std::vector<float> out(static_cast<size_t>(weights.view().shape.num_elements()));
    weights::Dequantize(weights.view(), out);
    return out;
  }

  // What the gated product of T rows leaves, in one launch or in two.
  std::vector<float> Gated(const PackedMatrix& w, const DeviceArray<std::byte>& x, int64_t t,
                           bool fused) {
    const int64_t width = w.n / 2;
    const auto out = Poisoned(static_cast<size_t>(t * width), kBf16);
    const auto between = Poisoned(static_cast<size_t>(t * w.n), kBf16);
    const MatmulSwiGluArgs args = {
        .product = {.out = between.View(kBf16, {t, w.n}), .x = x.View(kBf16, {t, w.k}), .w = &w},
        .glu = {.out = out.View(kBf16, {t, width}), .gate_up = between.View(kBf16, {t, w.n})}};
    if (fused) {
      MatmulSwiGlu(stream_, *workspace_, args);
      // In one launch: nothing lay between.
      if (t > sm90::kMaxDeferredTokens) {
        EXPECT_TRUE(std::isnan(FloatsToHost(between, kBf16).back()));
      }
    } else {
      Matmul(stream_, *workspace_, args.product);
      SwiGlu(stream_, args.glu);
    }
    return FloatsToHost(out, kBf16);
  }

  // What `launch` queues with `gated` is its product, rounded, and SwiGLU of that.
  template <typename Launch>
  void ExpectGatesToTheBit(sm90::GemmArgs args, const Launch& launch) {
    const int64_t t = args.t, width = args.n / 2;
    const auto between = Poisoned(static_cast<size_t>(t * args.n), kBf16);
    const auto expected = Poisoned(static_cast<size_t>(t * width), kBf16);
    const auto out = Poisoned(static_cast<size_t>(t * width), kBf16);
    args.out = between.data();
    args.out_stride = args.n;
    launch(args);
    SwiGlu(stream_,
           {.out = expected.View(kBf16, {t, width}), .gate_up = between.View(kBf16, {t, args.n})});
    args.out = out.data();
    args.out_stride = width;
    args.gated = true;
    launch(args);
    ASSERT_EQ(FloatsToHost(out, kBf16), FloatsToHost(expected, kBf16));
  }

  std::optional<Workspace> workspace_;
};

TEST_F(FusedProducts, AGatedProductHasTheBitsOfProductAndSwiGlu) {
  struct Case {
    int64_t width, k;
    std::vector<int64_t> tokens;
  };
  for (const Case& c :
       {Case{77, 72, {1, 9}}, Case{8193, 136, {1, 17, 40}},
        Case{8200, 192, {16, 17, 40, 63, 64, 100}}, Case{12288, 512, {31, 64, 127}}}) {
    const RandomWeights weights(kBf16, 2 * c.width, c.k, 1, 0.2f);
    PackedMatrix packed = Pack(weights);
    for (const SumOrder order : {SumOrder::kFastest, SumOrder::kFixed}) {
      packed.sum_order = order;
      for (const int64_t t : c.tokens) {
        const auto x = ToDevice(RandomNormals(static_cast<size_t>(t * c.k), 2), kBf16);
        const std::vector<float> expected = Gated(packed, x, t, false);
        const std::vector<float> got = Gated(packed, x, t, true);
        for (size_t i = 0; i < expected.size(); ++i) {
          ASSERT_EQ(got[i], expected[i]) << c.width << " x " << c.k << " T " << t << " at " << i;
        }
      }
    }
  }
}

TEST_F(FusedProducts, AGatedProductOfHundredsOfTokensHasTheBitsOfProductAndSwiGlu) {
  for (const int64_t width : {520, 12'288}) {
    constexpr int64_t kK = 264;
    const PackedMatrix w = Pack(RandomWeights(kBf16, 2 * width, kK, 1, 0.2f));
    for (const int64_t t : {129, 160, 257, 300, 320}) {
      const auto x = ToDevice(RandomNormals(static_cast<size_t>(t * kK), 2), kBf16);
      ASSERT_EQ(Gated(w, x, t, true), Gated(w, x, t, false)) << width << " T " << t;
    }
  }
}

TEST_F(FusedProducts, EveryFittedTilingGatesToTheBit) {
  using sm90::Scaling;
  struct Case {
    int64_t width, k, t;
    Scaling scaling = Scaling::kNone;
  };
  for (const Case& c :
       {Case{8, 72, 129}, Case{72, 200, 333}, Case{104, 512, 200}, Case{1000, 136, 257},
        Case{7000, 144, 300}, Case{136, 1032, 399}, Case{8, 144, 129, Scaling::kVector},
        Case{72, 272, 333, Scaling::kVector}, Case{1000, 400, 257, Scaling::kVector},
        Case{7000, 144, 300, Scaling::kVector}}) {
    const bool fp8 = c.scaling == Scaling::kVector;
    const auto operand = [&](int64_t rows, uint64_t seed) {
      std::vector<float> values = RandomNormals(static_cast<size_t>(rows * c.k), seed);
      if (!fp8) return ToDevice(values, kBf16);
      std::vector<std::byte> codes;
      for (const float value : values) codes.push_back(std::byte{FloatToF8E4M3(value)});
      return ToDevice(codes);
    };
    const auto scales = [&](int64_t count, uint64_t seed) {
      std::vector<float> values = RandomNormals(static_cast<size_t>(count), seed);
      for (float& value : values) value = 0.1f + std::fabs(value);
      return ToDevice(values);
    };
    const auto x = operand(c.t, 2), w = operand(2 * c.width, 1);
    const auto x_scale = scales(c.t, 3), w_scale = scales(2 * c.width, 4);
    const sm90::GemmArgs args{.x = x.data(),
                              .w = w.data(),
                              .x_scale = fp8 ? x_scale.data() : nullptr,
                              .w_scale = fp8 ? w_scale.data() : nullptr,
                              .t = c.t,
                              .n = 2 * c.width,
                              .k = c.k,
                              .scaling = c.scaling};
    for (const sm90::FittedVariant& variant : sm90::FittedVariants(c.scaling)) {
      const sm90::FittedTiling& tiling = variant.tiling;
      SCOPED_TRACE(::testing::Message()
                   << c.width << " x " << c.k << (fp8 ? " fp8" : "") << " T " << c.t << " tiles "
                   << tiling.tile_n << " x " << tiling.tile_t << " in " << tiling.parts);
      ExpectGatesToTheBit(
          args, [&](const sm90::GemmArgs& product) { FittedGemm(stream_, product, tiling); });
    }
  }
}

TEST_F(FusedProducts, EveryNarrowTilingGatesToTheBit) {
  using sm90::Scaling;
  struct Case {
    int64_t width, k, t;
  };
  for (const Case& c : {Case{104, 136, 9}, Case{72, 1024, 40}, Case{1000, 512, 64},
                        Case{200, 1024, 65}, Case{7000, 144, 127}, Case{136, 2048, 128}}) {
    const auto operand = [&](int64_t rows, uint64_t seed) {
      return ToDevice(RandomNormals(static_cast<size_t>(rows * c.k), seed), kBf16);
    };
    const auto x = operand(c.t, 2), w = operand(2 * c.width, 1);
    const sm90::GemmArgs args{.x = x.data(), .w = w.data(), .t = c.t, .n = 2 * c.width, .k = c.k};
    for (const auto& variant : sm90::VariantsOf(Scaling::kNone, sm90::GemmShape::kNarrow)) {
      const sm90::GemmTiling& tiling = variant.tiling;
      if (tiling.parts > 1 && 2 * c.k <= variant.boxes.blocks * sm90::kRowBytes) continue;
      SCOPED_TRACE(::testing::Message()
                   << c.width << " x " << c.k << " T " << c.t << " tiles " << tiling.tile_n << " x "
                   << tiling.tile_t << (tiling.in_order ? " in order" : "")
                   << (tiling.parts > 1 ? " in parts" : ""));
      ExpectGatesToTheBit(
          args, [&](const sm90::GemmArgs& product) { GemmWithTiling(stream_, product, tiling); });
    }
  }
}

TEST_F(FusedProducts, AGatedFp8ProductLeavesItsRowsQuantised) {
  constexpr int64_t kWidth = 1000, kK = 1040;
  PackedMatrix w = Pack(RandomWeights(kBf16, 2 * kWidth, kK, 1, 0.2f), MatmulPrecision::kFp8);
  for (const int64_t t : {129, 300, 384}) {
    const auto count = static_cast<size_t>(t * kWidth);
    const auto x = ToDevice(RandomNormals(static_cast<size_t>(t * kK), 2), kBf16);
    const auto x_codes = Poisoned<uint8_t>(static_cast<size_t>(t * kK));
    const auto x_scales = Poisoned<float>(static_cast<size_t>(t));
    const Fp8Rows rows{x_codes.data(), x_scales.data(), Fp8Scaling::kPerToken};
    QuantizeRows(stream_, {.out = rows, .x = x.View(kBf16, {t, kK})});
    const auto between = Poisoned(2 * count, kBf16);
    const TensorView product = between.View(kBf16, {t, 2 * kWidth});
    MatmulSwiGluArgs args = {
        .product = {.out = product, .x = x.View(kBf16, {t, kK}), .x_fp8 = rows, .w = &w},
        .glu = {.out = {nullptr, kBf16, {t, kWidth}}, .gate_up = product}};
    Matmul(stream_, *workspace_, args.product);
    std::vector<float> sums = FloatsToHost(between, kBf16), expected(count);
    SwiGluReference({.out = HostView(expected, t), .gate_up = HostView(sums, t)});
    for (const SumOrder order : {SumOrder::kFastest, SumOrder::kFixed}) {
      w.sum_order = order;
      const auto codes = Poisoned<uint8_t>(count);
      const auto scales = Poisoned<float>(static_cast<size_t>(t));
      args.glu.fp8 = {codes.data(), scales.data(), Fp8Scaling::kPerToken};
      MatmulSwiGlu(stream_, *workspace_, args);
      const std::vector<uint8_t> got = ToHost(codes);
      const std::vector<float> scale = ToHost(scales);
      std::vector<float> values(count);
      for (size_t i = 0; i < count; ++i) {
        values[i] = F8E4M3ToFloat(got[i]) * scale[i / static_cast<size_t>(kWidth)];
      }
      // Codes keep 4 bits: 2^−4 / √3 of a value at most.
      EXPECT_LT(RelativeError(values, expected), 0.037) << " T " << t;
    }
    w.sum_order = SumOrder::kFastest;
  }
}

TEST_F(FusedProducts, ADeferredNormIsDoneByTheNextProduct) {
  struct Case {
    int64_t k, columns, n;
  };
  for (const Case& c : {Case{64, 8, 24}, Case{72, 200, 77}, Case{512, 1000, 640},
                        Case{1024, 4096, 500}, Case{256, 8448, 48}}) {
    const RandomWeights first(kBf16, c.columns, c.k, 3, 0.1f), second(kBf16, c.n, c.columns, 4);
    const PackedMatrix w = Pack(first), next = Pack(second);
    const std::vector<float> w_values = Dequantized(first), next_values = Dequantized(second);
    std::vector<float> norm = RandomNormals(static_cast<size_t>(c.columns), 5);
    const auto norm_device = ToDevice(norm);
    for (const int64_t t : {1, 2, 8, 9, 15, 16}) {
      const auto count = static_cast<size_t>(t * c.columns);
      const std::vector<float> x = Rounded(RandomNormals(static_cast<size_t>(t * c.k), 6), kBf16);
      std::vector<float> residual = RandomNormals(count, 7);
      for (float& value : residual) value *= 30.0f;
      const auto x_device = ToDevice(x, kBf16);
      const auto residual_device = ToDevice(residual);
      const auto normed = Poisoned(count, kBf16), part = Poisoned(count, kBf16);
      const auto squares = Poisoned<float>(static_cast<size_t>(DeferredNormFloats(c.columns)));
      const auto out = Poisoned<float>(static_cast<size_t>(t * c.n));
      const DeferredNorm deferred =
          MatmulAddNorm(stream_, *workspace_,
                        {.product = {.out = part.View(kBf16, {t, c.columns}),
                                     .x = x_device.View(kBf16, {t, c.k}),
                                     .w = &w},
                         .norm = {.residual = residual_device.View(DType::kF32, {t, c.columns}),
                                  .x = part.View(kBf16, {t, c.columns}),
                                  .out = normed.View(kBf16, {t, c.columns}),
                                  .weight = norm_device.data(),
                                  .eps = kEps},
                         .next = &next,
                         .squares = squares.data()});
      ASSERT_TRUE(deferred.pending());
      Matmul(stream_, *workspace_,
             {.out = out.View(DType::kF32, {t, c.n}),
              .x = normed.View(kBf16, {t, c.columns}),
              .x_norm = deferred,
              .w = &next});
      std::vector<float> product(count), expected_normed(count);
      MatmulReference(product.data(), x.data(), w_values.data(), nullptr, t, c.columns, c.k);
      AddRmsNormReference({.residual = HostView(residual, t),
                           .x = HostView(product, t),
                           .out = HostView(expected_normed, t),
                           .weight = norm.data(),
                           .eps = kEps});
      std::vector<float> expected(static_cast<size_t>(t * c.n));
      MatmulReference(expected.data(), expected_normed.data(), next_values.data(), nullptr, t, c.n,
                      c.columns);
      // Sums in another order; then the rounding of the normed rows to bf16, 2^−9 / √3 each.
      EXPECT_LT(RelativeError(ToHost(residual_device), residual), 1e-6) << c.columns << " T " << t;
      EXPECT_LT(RelativeError(ToHost(out), expected), 2.5e-3) << c.columns << " T " << t;
    }
  }
}

// A norm reads the residual before the product ahead of it has ended, and the norm before that
// product wrote it.
TEST_F(FusedProducts, ANormBehindAProductReadsTheResidualOfTheNormBeforeIt) {
  constexpr int64_t kWidth = 2048;
  constexpr int kLayers = 24;
  const RandomWeights weights(kBf16, kWidth, kWidth, 8, 0.02f);
  const PackedMatrix w = Pack(weights);
  const auto norm = ToDevice(std::vector<float>(kWidth, 1.0f));
  for (const int64_t t : {1, 5, 16, 40, 64, 100, 200, 300}) {
    const auto count = static_cast<size_t>(t * kWidth);
    const std::vector<float> begin = RandomNormals(count, 9);
    const auto run = [&](bool waits) {
      const auto residual = ToDevice(begin);
      const auto normed = ToDevice(begin, kBf16), part = Poisoned(count, kBf16);
      for (int layer = 0; layer < kLayers; ++layer) {
        Matmul(
            stream_, *workspace_,
            {.out = part.View(kBf16, {t, kWidth}), .x = normed.View(kBf16, {t, kWidth}), .w = &w});
        if (waits) Wait();
        AddRmsNorm(stream_, {.residual = residual.View(DType::kF32, {t, kWidth}),
                             .x = part.View(kBf16, {t, kWidth}),
                             .out = normed.View(kBf16, {t, kWidth}),
                             .weight = norm.data(),
                             .eps = kEps});
        if (waits) Wait();
      }
      return ToHost(residual);
    };
    EXPECT_TRUE(run(false) == run(true)) << "T " << t;
  }
}

TEST_F(FusedProducts, NoNormIsDeferredWhereTheNextProductCouldNotDivide) {
  constexpr int64_t kColumns = 256, kK = 128;
  const RandomWeights first(kBf16, kColumns, kK, 8), second(kBf16, 64, kColumns, 9);
  PackedMatrix w = Pack(first), next = Pack(second);
  const PackedMatrix fp8 = Pack(second, MatmulPrecision::kFp8);
  const auto norm = ToDevice(RandomNormals(kColumns, 10));
  const auto squares = Poisoned<float>(static_cast<size_t>(DeferredNormFloats(kColumns)));
  const auto defers = [&](int64_t t, const PackedMatrix* reader) {
    const auto count = static_cast<size_t>(t * kColumns);
    const auto x = ToDevice(RandomNormals(static_cast<size_t>(t * kK), 11), kBf16);
    const auto residual = ToDevice(RandomNormals(count, 12));
    const auto part = Poisoned(count, kBf16), normed = Poisoned(count, kBf16);
    const DeferredNorm deferred = MatmulAddNorm(
        stream_, *workspace_,
        {.product = {.out = part.View(kBf16, {t, kColumns}), .x = x.View(kBf16, {t, kK}), .w = &w},
         .norm = {.residual = residual.View(DType::kF32, {t, kColumns}),
                  .x = part.View(kBf16, {t, kColumns}),
                  .out = normed.View(kBf16, {t, kColumns}),
                  .weight = norm.data(),
                  .eps = kEps},
         .next = reader,
         .squares = squares.data()});
    for (const float value : FloatsToHost(normed, kBf16)) EXPECT_FALSE(std::isnan(value));
    return deferred.pending();
  };
  EXPECT_TRUE(defers(16, &next));
  EXPECT_FALSE(defers(17, &next));
  EXPECT_FALSE(defers(1, nullptr));
  EXPECT_FALSE(defers(1, &fp8));
  next.sum_order = SumOrder::kFixed;
  EXPECT_FALSE(defers(1, &next));
  next.sum_order = SumOrder::kFastest;
  w.sum_order = SumOrder::kFixed;
  EXPECT_FALSE(defers(1, &next));
}

}  // namespace
}  // namespace hayate::ops
