#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <string>
#include <vector>

#include "base/rng.h"
#include "ops/matmul/kernels.h"
#include "ops/matmul/quantize.h"
#include "ops/matmul/testing/random_weights.h"
#include "tensor/float16.h"
#include "weights/dequantize.h"

namespace hayate::ops::matmul {
namespace {

constexpr DType kAllDTypes[] = {DType::kF32,  DType::kF16,    DType::kBF16,  DType::kF8E4M3,
                                DType::kQ4_0, DType::kQ4_1,   DType::kQ5_0,  DType::kQ5_1,
                                DType::kQ8_0, DType::kIQ4_NL, DType::kMXFP4, DType::kQ2_K,
                                DType::kQ3_K, DType::kQ4_K,   DType::kQ5_K,  DType::kQ6_K};

std::vector<float> RandomActivations(int64_t count, uint64_t seed) {
  Rng rng(seed);
  std::vector<float> x(static_cast<size_t>(count));
  for (float& value : x) value = rng.NextNormal();
  // A few outliers, as real activations have.
  for (int64_t i = 0; i < count / 100; ++i) x[rng.Below(static_cast<uint32_t>(count))] *= 30.0f;
  return x;
}

std::vector<float> DequantizeAll(const ConstTensorView& weights) {
  std::vector<float> out(static_cast<size_t>(weights.shape.num_elements()));
  weights::Dequantize(weights, out);
  return out;
}

class MatmulTest : public testing::TestWithParam<const Kernels*> {
 protected:
  MatmulTest()
      : device_(MakeCpuDevice(0)),
        workspace_(Buffer::Allocate(*device_, size_t{16} << 20).value()) {}

  void SetUp() override {
    if (!GetParam()->runs_on(DetectCpuFeatures())) {
      GTEST_SKIP() << "this CPU (" << ToString(DetectCpuFeatures()) << ") cannot run "
                   << GetParam()->name;
    }
  }

  PackedMatrix Pack(std::span<const MatrixPiece> pieces,
                    MatmulPrecision precision = MatmulPrecision::kFast) {
    return PackMatrixFor(*GetParam(), *device_, pieces, precision).value();
  }
  PackedMatrix Pack(const RandomWeights& weights,
                    MatmulPrecision precision = MatmulPrecision::kFast) {
    const MatrixPiece piece = MatrixPiece::Whole(weights.view());
    return Pack({&piece, 1}, precision);
  }
  std::vector<float> Run(const PackedMatrix& w, const std::vector<float>& x, int64_t t,
                         const float* bias = nullptr) {
    // A guard value after the end shows a store past the last row.
    std::vector<float> out(static_cast<size_t>(t * w.n + 16), -7.0f);
    auto* x_data = reinterpret_cast<std::byte*>(const_cast<float*>(x.data()));
    MatmulWith(*GetParam(), workspace_,
               {.out = {reinterpret_cast<std::byte*>(out.data()), DType::kF32, {t, w.n}},
                .x = TensorView{x_data, DType::kF32, {t, w.k}},
                .w = &w,
                .bias = bias});
    for (size_t i = static_cast<size_t>(t * w.n); i < out.size(); ++i) EXPECT_EQ(out[i], -7.0f);
    out.resize(static_cast<size_t>(t * w.n));
    return out;
  }

  std::unique_ptr<Device> device_;
  Workspace workspace_;
};

// The activations that a part's kernel really multiplies, in fp32.
std::vector<float> RoundActivations(const PackedMatrix& w, const std::vector<float>& x) {
  const Layout layout = static_cast<Layout>(w.parts[0].layout);
  std::vector<float> rounded = x;
  if (layout == Layout::kBf16Dot) {
    for (float& value : rounded) value = Bf16ToFloat(FloatToBf16(value));
  }
  if (InfoOf(layout).codes == Codes::kFloat) return rounded;
  for (size_t i = 0; i < x.size(); i += kBlock) {
    int8_t codes[kBlock];
    const BlockMeta meta = QuantizeBlock(&x[i], codes);
    for (size_t j = 0; j < kBlock; ++j) rounded[i + j] = meta.scale * static_cast<float>(codes[j]);
  }
  return rounded;
}

// Compares with double sums over the rounded activations. What is left is fp32 rounding: each of at
// most 2K operations loses 2⁻²⁴ of the partial sums, which Σ|w·x| (plus the min terms) bounds. A
// weight with a min is summed as two terms that may each be larger than the weight: the factor 32.
void ExpectProduct(const PackedMatrix& w, const std::vector<float>& weights,
                   const std::vector<float>& x, const std::vector<float>& out, int64_t t,
                   const std::string& what) {
  const std::vector<float> rounded = RoundActivations(w, x);
  for (int64_t token = 0; token < t; ++token) {
    for (int64_t row = 0; row < w.n; ++row) {
      double sum = 0, magnitude = 0;
      for (int64_t i = 0; i < w.k; ++i) {
        const double product = double{weights[static_cast<size_t>(row * w.k + i)]} *
                               rounded[static_cast<size_t>(token * w.k + i)];
        sum += product;
        magnitude += std::fabs(product);
      }
      const double bound = 32.0 * std::sqrt(static_cast<double>(w.k)) * 0x1p-24 * magnitude + 1e-30;
      ASSERT_NEAR(out[static_cast<size_t>(token * w.n + row)], sum, bound)
          << what << " token " << token << " row " << row;
    }
  }
}

TEST_P(MatmulTest, PackedRowsDequantizeToTheStoredWeights) {
  for (const DType dtype : kAllDTypes) {
    for (const MatmulPrecision precision : {MatmulPrecision::kFast, MatmulPrecision::kExact}) {
      const RandomWeights weights(dtype, 37, 512, 1);
      const PackedMatrix packed = Pack(weights, precision);
      const std::vector<float> expected = DequantizeAll(weights.view());
      for (int64_t row = 0; row < 37; ++row) {
        std::vector<float> unpacked(512);
        UnpackRow(packed, row, unpacked.data());
        for (size_t i = 0; i < 512; ++i) {
          ASSERT_EQ(unpacked[i], expected[static_cast<size_t>(row) * 512 + i])
              << Info(dtype).name << " row " << row << " column " << i;
        }
      }
    }
  }
}

TEST_P(MatmulTest, EveryDtypeMatchesTheDefinitionOverOddShapes) {
  for (const DType dtype : kAllDTypes) {
    const int64_t unit = Info(dtype).block_elements;
    for (const int64_t n : {1, 15, 16, 17, 33, 100}) {
      for (const int64_t k : {unit, 3 * unit, unit == 1 ? int64_t{577} : 5 * unit}) {
        const RandomWeights weights(dtype, n, k, static_cast<uint64_t>(n * 1000 + k));
        const std::vector<float> values = DequantizeAll(weights.view());
        for (const MatmulPrecision precision : {MatmulPrecision::kFast, MatmulPrecision::kExact}) {
          const PackedMatrix packed = Pack(weights, precision);
          for (const int64_t t : {0, 1, 2, 3, 5, 7, 8, 17}) {
            const std::vector<float> x = RandomActivations(t * k, static_cast<uint64_t>(t));
            ExpectProduct(packed, values, x, Run(packed, x, t), t,
                          std::string(Info(dtype).name) + " n " + std::to_string(n) + " k " +
                              std::to_string(k) + " t " + std::to_string(t));
            if (HasFatalFailure()) return;
          }
        }
      }
    }
  }
}

TEST_P(MatmulTest, AModelSizedProductMatchesTheDefinition) {
  for (const DType dtype : {DType::kQ4_1, DType::kQ4_0, DType::kQ8_0, DType::kBF16, DType::kF16}) {
    const RandomWeights weights(dtype, 200, 1536, 3);
    const PackedMatrix packed = Pack(weights);
    const std::vector<float> x = RandomActivations(65 * 1536, 4);
    ExpectProduct(packed, DequantizeAll(weights.view()), x, Run(packed, x, 65), 65,
                  std::string(Info(dtype).name));
    if (HasFatalFailure()) return;
  }
}

TEST_P(MatmulTest, ARowDoesNotDependOnTheBatchAroundIt) {
  for (const DType dtype : kAllDTypes) {
    for (const MatmulPrecision precision : {MatmulPrecision::kFast, MatmulPrecision::kExact}) {
      constexpr int64_t kN = 72, kK = 512, kT = 43;
      const RandomWeights weights(dtype, kN, kK, 5);
      const PackedMatrix packed = Pack(weights, precision);
      const std::vector<float> x = RandomActivations(kT * kK, 6);
      const std::vector<float> all = Run(packed, x, kT);
      Rng rng(7);
      for (int64_t begin = 0; begin < kT;) {
        const int64_t count = std::min<int64_t>(kT - begin, 1 + rng.Below(12));
        const std::vector<float> part =
            Run(packed, {x.begin() + begin * kK, x.begin() + (begin + count) * kK}, count);
        for (int64_t i = 0; i < count * kN; ++i) {
          ASSERT_EQ(std::bit_cast<uint32_t>(part[static_cast<size_t>(i)]),
                    std::bit_cast<uint32_t>(all[static_cast<size_t>(begin * kN + i)]))
              << Info(dtype).name << " token " << begin + i / kN << " row " << i % kN;
        }
        begin += count;
      }
    }
  }
}

TEST_P(MatmulTest, ALongBatchIsTheSameInSeveralPasses) {
  constexpr int64_t kN = 16, kK = 4096, kT = 200;  // passes of 96 tokens
  const RandomWeights weights(DType::kQ4_1, kN, kK, 8);
  const PackedMatrix packed = Pack(weights);
  const std::vector<float> x = RandomActivations(kT * kK, 9);
  const std::vector<float> all = Run(packed, x, kT);
  for (const int64_t token : {0, 95, 96, 191, 199}) {
    const std::vector<float> one =
        Run(packed, {x.begin() + token * kK, x.begin() + (token + 1) * kK}, 1);
    for (int64_t row = 0; row < kN; ++row) {
      ASSERT_EQ(one[static_cast<size_t>(row)], all[static_cast<size_t>(token * kN + row)]);
    }
  }
}

TEST_P(MatmulTest, PiecesOfDifferentTypesAndShardsBecomeOneMatrix) {
  constexpr int64_t kK = 256;
  const RandomWeights a(DType::kQ4_1, 64, 2 * kK, 10);
  const RandomWeights b(DType::kQ6_K, 40, 2 * kK, 11);
  const RandomWeights c(DType::kBF16, 24, 2 * kK, 12);
  const MatrixPiece pieces[] = {{a.view(), 3, 50, kK, 2 * kK},
                                {b.view(), 0, 17, kK, 2 * kK},
                                {c.view(), 8, 8, 0, kK},
                                {c.view(), 8, 24, 0, kK}};
  const PackedMatrix packed = Pack(pieces);
  ASSERT_EQ(packed.n, 47 + 17 + 16);
  std::vector<float> expected;
  for (const MatrixPiece& piece : pieces) {
    const std::vector<float> all = DequantizeAll(piece.weights);
    for (int64_t row = piece.row_begin; row < piece.row_end; ++row) {
      const auto begin = all.begin() + row * 2 * kK;
      expected.insert(expected.end(), begin + piece.col_begin, begin + piece.col_end);
    }
  }
  for (int64_t row = 0; row < packed.n; ++row) {
    std::vector<float> unpacked(kK);
    UnpackRow(packed, row, unpacked.data());
    for (int64_t i = 0; i < kK; ++i) {
      ASSERT_EQ(unpacked[static_cast<size_t>(i)], expected[static_cast<size_t>(row * kK + i)]);
    }
  }
  const std::vector<float> x = RandomActivations(3 * kK, 13);
  std::vector<float> bias(static_cast<size_t>(packed.n));
  for (size_t i = 0; i < bias.size(); ++i) bias[i] = static_cast<float>(i);
  const std::vector<float> plain = Run(packed, x, 3);
  const std::vector<float> biased = Run(packed, x, 3, bias.data());
  for (size_t i = 0; i < plain.size(); ++i) {
    EXPECT_EQ(biased[i], plain[i] + bias[i % bias.size()]);
  }
}

TEST_P(MatmulTest, QuantizedActivationsAreThoseOfTheDefinition) {
  constexpr int64_t kK = 32 * 40;
  std::vector<float> x = RandomActivations(kK, 14);
  for (size_t i = 0; i < 32; ++i) {
    x[i] = 0.0f;
    x[32 + i] = static_cast<float>(i) * 1e-38f;
    x[64 + i] = 3e38f * (i % 2 == 0 ? 1.0f : -1.0f);
    x[96 + i] = static_cast<float>(i) - 15.5f;  // ties
  }
  x[130] = NAN;
  x[170] = INFINITY;
  x[200] = -INFINITY;
  std::vector<int8_t> codes(kK);
  std::vector<BlockMeta> metas(kK / kBlock);
  GetParam()->quantize(x.data(), 1, kK, codes.data(), metas.data());
  for (int64_t block = 0; block < kK / kBlock; ++block) {
    int8_t expected_codes[kBlock];
    const BlockMeta expected =
        QuantizeBlock(&x[static_cast<size_t>(block * kBlock)], expected_codes);
    const BlockMeta& meta = metas[static_cast<size_t>(block)];
    if (std::isnan(expected.scale)) {
      EXPECT_TRUE(std::isnan(meta.scale) && std::isnan(meta.scaled_sum)) << block;
      continue;
    }
    EXPECT_EQ(std::memcmp(&meta, &expected, sizeof(meta)), 0) << block;
    EXPECT_EQ(std::memcmp(&codes[static_cast<size_t>(block * kBlock)], expected_codes, kBlock), 0);
  }
}

TEST_P(MatmulTest, BadActivationsPoisonTheirOwnRowOnly) {
  for (const DType dtype : kAllDTypes) {
    constexpr int64_t kK = 512, kN = 20;
    const RandomWeights weights(dtype, kN, kK, 15);
    const PackedMatrix packed = Pack(weights);
    std::vector<float> x = RandomActivations(3 * kK, 16);
    const std::vector<float> good = Run(packed, x, 3);
    x[kK + 5] = NAN;
    x[kK + 77] = INFINITY;
    x[kK + 300] = -3.0e38f;
    const std::vector<float> out = Run(packed, x, 3);
    for (int64_t row = 0; row < kN; ++row) {
      EXPECT_EQ(out[static_cast<size_t>(row)], good[static_cast<size_t>(row)]);
      EXPECT_TRUE(std::isnan(out[static_cast<size_t>(kN + row)])) << Info(dtype).name;
      EXPECT_EQ(out[static_cast<size_t>(2 * kN + row)], good[static_cast<size_t>(2 * kN + row)]);
    }
  }
}

TEST_P(MatmulTest, ExtremeCodesDoNotOverflow) {
  // Every code at its largest magnitude against activations at ±127 steps: the integer sums peak.
  for (const DType dtype :
       {DType::kQ4_0, DType::kQ4_1, DType::kQ5_0, DType::kQ5_1, DType::kQ8_0, DType::kIQ4_NL,
        DType::kMXFP4, DType::kQ2_K, DType::kQ3_K, DType::kQ4_K, DType::kQ5_K, DType::kQ6_K}) {
    for (const int fill : {0x00, 0xFF, 0x80, 0x88, 0x7F, 0x08}) {
      const int64_t k = Info(dtype).block_elements * 2;
      std::vector<std::byte> bytes(static_cast<size_t>(RowBytes(dtype, k)) * 16,
                                   static_cast<std::byte>(fill));
      const HalfFields fields = HalfFieldsOf(dtype);
      const uint16_t one = FloatToF16(1.0f);
      for (size_t at = 0; at < bytes.size(); at += static_cast<size_t>(Info(dtype).block_bytes)) {
        for (const int offset : {fields.d, fields.min}) {
          if (offset >= 0) std::memcpy(&bytes[at] + offset, &one, 2);
        }
        if (dtype == DType::kMXFP4) bytes[at] = std::byte{127};
      }
      const MatrixPiece piece = MatrixPiece::Whole({bytes.data(), dtype, {16, k}});
      const PackedMatrix packed = Pack({&piece, 1});
      for (const float sign : {1.0f, -1.0f}) {
        const std::vector<float> x(static_cast<size_t>(2 * k), sign);
        ExpectProduct(packed, DequantizeAll(piece.weights), x, Run(packed, x, 2), 2,
                      std::string(Info(dtype).name) + " fill " + std::to_string(fill));
        if (HasFatalFailure()) return;
      }
    }
  }
}

TEST_P(MatmulTest, ShardsThatCutBlocksAreRefused) {
  const RandomWeights weights(DType::kQ4_K, 4, 512, 17);
  for (const MatrixPiece& piece :
       {MatrixPiece{weights.view(), 0, 4, 0, 128}, MatrixPiece{weights.view(), 0, 5, 0, 512},
        MatrixPiece{weights.view(), 2, 1, 0, 512}, MatrixPiece{weights.view(), 0, 4, 256, 256}}) {
    const auto packed = PackMatrixFor(*GetParam(), *device_, {&piece, 1}, MatmulPrecision::kFast);
    EXPECT_EQ(packed.status().code(), ErrorCode::kInvalidArgument);
  }
  std::vector<std::byte> integers(64);
  const MatrixPiece piece = MatrixPiece::Whole({integers.data(), DType::kI32, {4, 4}});
  EXPECT_EQ(
      PackMatrixFor(*GetParam(), *device_, {&piece, 1}, MatmulPrecision::kFast).status().code(),
      ErrorCode::kUnsupported);
}

TEST_P(MatmulTest, ASliceOfAWiderBufferLeavesTheRestAlone) {
  constexpr int64_t kN = 24, kK = 64, kT = 5, kWidth = 40;
  const RandomWeights weights(DType::kQ4_1, kN, kK, 21);
  const PackedMatrix packed = Pack(weights);
  const std::vector<float> x = RandomActivations(kT * kK, 22);
  const std::vector<float> expected = Run(packed, x, kT);
  std::vector<float> wide(kT * kWidth, -7.0f);
  auto* x_data = reinterpret_cast<std::byte*>(const_cast<float*>(x.data()));
  MatmulWith(*GetParam(), workspace_,
             {.out = {reinterpret_cast<std::byte*>(wide.data() + 8), DType::kF32, {kT, kN}},
              .x = TensorView{x_data, DType::kF32, {kT, kK}},
              .w = &packed,
              .out_row_stride = kWidth});
  for (int64_t t = 0; t < kT; ++t) {
    for (int64_t i = 0; i < kWidth; ++i) {
      const bool inside = i >= 8 && i < 8 + kN;
      EXPECT_EQ(wide[static_cast<size_t>(t * kWidth + i)],
                inside ? expected[static_cast<size_t>(t * kN + i - 8)] : -7.0f);
    }
  }
}

TEST_P(MatmulTest, TheWorkspaceBoundHolds) {
  for (const int64_t t : {1, 7, 65, 1000}) {
    for (const int64_t k : {32, 576, 4096}) {
      const RandomWeights a(DType::kQ4_0, 3, k, 18);
      const RandomWeights b(DType::kBF16, 3, k, 19);
      const MatrixPiece pieces[] = {MatrixPiece::Whole(a.view()), MatrixPiece::Whole(b.view())};
      const PackedMatrix packed = Pack(pieces);
      workspace_ = Workspace(
          Buffer::Allocate(*device_, static_cast<size_t>(MatmulWorkspaceBytes(t, k))).value());
      Run(packed, RandomActivations(t * k, 20), t);
      EXPECT_EQ(workspace_.mark(), 0u);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Kernels, MatmulTest, testing::ValuesIn(AllKernels()),
                         [](const auto& param) { return std::string(param.param->name); });

}  // namespace
}  // namespace hayate::ops::matmul
