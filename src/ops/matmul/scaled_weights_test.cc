// Weights whose scales are a tensor of their own: FP8 blocks and MXFP4 with neighbours in a byte.

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "base/align.h"
#include "base/rng.h"
#include "ops/matmul/f8_kernels.h"
#include "ops/matmul/kernels.h"
#include "ops/matmul/quantize.h"
#include "weights/dequantize.h"

namespace hayate::ops::matmul {
namespace {

struct Format {
  const char* name;
  DType codes;
  DType scales;
  int32_t rows, cols;
};
constexpr Format kFormats[] = {
    {"F8_128x128_f32", DType::kF8E4M3, DType::kF32, 128, 128},
    {"F8_128x128_bf16", DType::kF8E4M3, DType::kBF16, 128, 128},
    {"F8_32x32_ue8m0", DType::kF8E4M3, DType::kF8E8M0, 32, 32},
    {"F8_1x32_ue8m0", DType::kF8E4M3, DType::kF8E8M0, 1, 32},
    {"F4_1x32_ue8m0", DType::kF4E2M1, DType::kF8E8M0, 1, 32},
};

// A random [n, k] matrix of a format.
class ScaledWeights {
 public:
  ScaledWeights(const Format& format, int64_t n, int64_t k, uint64_t seed)
      : format_(format), n_(n), k_(k) {
    Rng rng(seed);
    codes_.resize(static_cast<size_t>(n * RowBytes(format.codes, k)));
    for (std::byte& code : codes_) {
      code = static_cast<std::byte>(rng.Below(256));
      // The NaN codes of E4M3.
      if (format.codes == DType::kF8E4M3 && (code & std::byte{0x7F}) == std::byte{0x7F}) {
        code = std::byte{0x40};
      }
    }
    const int64_t count = scale_shape().num_elements();
    for (int64_t i = 0; i < count; ++i) {
      const float value = std::exp2(rng.NextNormal() * 2.0f) * 0.01f;
      if (format.scales == DType::kF8E8M0) {
        Append(static_cast<uint8_t>(120 + rng.Below(8)));
      } else if (format.scales == DType::kBF16) {
        Append(FloatToBf16(value));
      } else {
        Append(value);
      }
    }
  }

  Shape scale_shape() const {
    return {CeilDiv<int64_t>(n_, format_.rows), CeilDiv<int64_t>(k_, format_.cols)};
  }
  MatrixPiece piece() const {
    MatrixPiece piece = MatrixPiece::Whole({codes_.data(), format_.codes, {n_, k_}});
    piece.scales = {{scales_.data(), format_.scales, scale_shape()}, format_.rows, format_.cols};
    return piece;
  }
  // The definition: code × scale.
  std::vector<float> Values() const {
    std::vector<float> values(static_cast<size_t>(n_ * k_));
    weights::Dequantize({codes_.data(), format_.codes, {n_, k_}}, values);
    const BlockScales scales = piece().scales;
    for (int64_t i = 0; i < n_ * k_; ++i)
      values[static_cast<size_t>(i)] *= scales.At(i / k_, i % k_);
    return values;
  }

 private:
  template <typename T>
  void Append(T value) {
    const auto* bytes = reinterpret_cast<const std::byte*>(&value);
    scales_.insert(scales_.end(), bytes, bytes + sizeof(T));
  }

  const Format format_;
  const int64_t n_, k_;
  std::vector<std::byte> codes_, scales_;
};

class ScaledMatmul : public testing::TestWithParam<const Kernels*> {
 protected:
  PackedMatrix Pack(const MatrixPiece& piece, MatmulPrecision precision) {
    return PackMatrixFor(*GetParam(), *device_, {&piece, 1}, precision).value();
  }
  std::vector<float> Run(const PackedMatrix& w, std::vector<float> x, int64_t t) {
    std::vector<float> out(static_cast<size_t>(t * w.n));
    MatmulWith(*GetParam(), workspace_,
               {.out = {reinterpret_cast<std::byte*>(out.data()), DType::kF32, {t, w.n}},
                .x = TensorView{reinterpret_cast<std::byte*>(x.data()), DType::kF32, {t, w.k}},
                .w = &w});
    return out;
  }

  std::unique_ptr<Device> device_ = MakeCpuDevice(0);
  Workspace workspace_{Buffer::Allocate(*device_, size_t{4} << 20).value()};
};

std::vector<float> Unpacked(const PackedMatrix& w) {
  std::vector<float> values(static_cast<size_t>(w.n * w.k));
  for (int64_t row = 0; row < w.n; ++row)
    UnpackRow(w, row, &values[static_cast<size_t>(row * w.k)]);
  return values;
}

TEST_P(ScaledMatmul, PackedWeightsAreCodeTimesScale) {
  for (const Format& format : kFormats) {
    for (const auto& [n, k] : {std::pair{37, 64}, {130, 288}, {16, 32}}) {
      const ScaledWeights weights(format, n, k, 1);
      for (const MatmulPrecision precision : {MatmulPrecision::kFast, MatmulPrecision::kExact}) {
        EXPECT_EQ(Unpacked(Pack(weights.piece(), precision)), weights.Values()) << format.name;
      }
    }
  }
}

TEST_P(ScaledMatmul, AnF8WidthNeedNotBeWholeBlocks) {
  const ScaledWeights weights(kFormats[0], 20, 200, 2);
  EXPECT_EQ(Unpacked(Pack(weights.piece(), MatmulPrecision::kFast)), weights.Values());
}

TEST_P(ScaledMatmul, AShardIsPartOfTheWhole) {
  for (const Format& format : kFormats) {
    const int64_t n = 200, k = 320;
    const ScaledWeights weights(format, n, k, 3);
    const std::vector<float> whole = weights.Values();
    MatrixPiece piece = weights.piece();
    piece.row_begin = 17, piece.row_end = 151;
    piece.col_begin = 96, piece.col_end = 288;
    const std::vector<float> part = Unpacked(Pack(piece, MatmulPrecision::kFast));
    for (int64_t row = 0; row < 134; ++row) {
      for (int64_t col = 0; col < 192; ++col) {
        ASSERT_EQ(part[static_cast<size_t>(row * 192 + col)],
                  whole[static_cast<size_t>((row + 17) * k + col + 96)])
            << format.name << " " << row << " " << col;
      }
    }
  }
}

TEST_P(ScaledMatmul, ARowStepTakesEveryOtherRow) {
  for (const Format& format : kFormats) {
    const int64_t k = 64;
    const ScaledWeights weights(format, 38, k, 4);
    const std::vector<float> whole = weights.Values();
    MatrixPiece piece = weights.piece();
    piece.row_begin = 5, piece.row_end = 38, piece.row_step = 2;
    const PackedMatrix packed = Pack(piece, MatmulPrecision::kExact);
    ASSERT_EQ(packed.n, 17);
    const std::vector<float> part = Unpacked(packed);
    for (int64_t row = 0; row < 17; ++row) {
      for (int64_t col = 0; col < k; ++col) {
        ASSERT_EQ(part[static_cast<size_t>(row * k + col)],
                  whole[static_cast<size_t>((5 + 2 * row) * k + col)]);
      }
    }
  }
}

// Fp32 rounding alone in exact mode and of F8; MXFP4's fast mode rounds activations to int8, here
// replayed before the double sum.
TEST_P(ScaledMatmul, ProductsMatchDoubleSums) {
  Rng rng(5);
  for (const Format& format : kFormats) {
    for (const int64_t t : {1, 3, 9}) {
      const int64_t n = 33, k = 160;
      const ScaledWeights weights(format, n, k, 6);
      const std::vector<float> values = weights.Values();
      std::vector<float> x(static_cast<size_t>(t * k));
      for (float& value : x) value = rng.NextNormal();
      for (const MatmulPrecision precision : {MatmulPrecision::kFast, MatmulPrecision::kExact}) {
        std::vector<float> rounded = x;
        if (precision == MatmulPrecision::kFast && format.codes == DType::kF4E2M1) {
          for (size_t i = 0; i < x.size(); i += kBlock) {
            int8_t codes[kBlock];
            const BlockMeta meta = QuantizeBlock(&x[i], codes);
            for (size_t j = 0; j < kBlock; ++j) {
              rounded[i + j] = meta.scale * static_cast<float>(codes[j]);
            }
          }
        }
        const std::vector<float> out = Run(Pack(weights.piece(), precision), x, t);
        for (int64_t i = 0; i < t * n; ++i) {
          double sum = 0, magnitude = 0;
          for (int64_t c = 0; c < k; ++c) {
            const double product = double{values[static_cast<size_t>(i % n * k + c)]} *
                                   rounded[static_cast<size_t>(i / n * k + c)];
            sum += product;
            magnitude += std::fabs(product);
          }
          ASSERT_NEAR(out[static_cast<size_t>(i)], sum,
                      4.0 * std::sqrt(static_cast<double>(k)) * 0x1p-24 * magnitude)
              << format.name << " " << i;
        }
      }
    }
  }
}

TEST_P(ScaledMatmul, RowsDoNotDependOnTheirNeighbours) {
  Rng rng(7);
  for (const Format& format : kFormats) {
    const int64_t n = 48, k = 128, t = 11;
    const ScaledWeights weights(format, n, k, 8);
    const PackedMatrix packed = Pack(weights.piece(), MatmulPrecision::kFast);
    std::vector<float> x(static_cast<size_t>(t * k));
    for (float& value : x) value = rng.NextNormal();
    const std::vector<float> together = Run(packed, x, t);
    for (int64_t i = 0; i < t; ++i) {
      const std::vector<float> row(x.begin() + i * k, x.begin() + (i + 1) * k);
      const std::vector<float> alone = Run(packed, row, 1);
      EXPECT_TRUE(std::equal(alone.begin(), alone.end(), together.begin() + i * n)) << format.name;
    }
  }
}

TEST(F8Kernels, AgreeWithThePortableOne) {
  Rng rng(11);
  const auto device = MakeCpuDevice(0);
  for (const auto& [n, k] : {std::pair{50, 200}, {16, 32}, {7, 33}}) {
    const ScaledWeights weights(kFormats[0], n, k, 12);
    const MatrixPiece piece = weights.piece();
    const PackedMatrix packed =
        PackMatrixFor(PlainKernels(), *device, {&piece, 1}, MatmulPrecision::kFast).value();
    const std::vector<float> values = weights.Values();
    const int64_t t = 6;
    std::vector<float> x(static_cast<size_t>(t * k)), bias(static_cast<size_t>(n));
    for (float& value : x) value = rng.NextNormal();
    for (float& value : bias) value = rng.NextNormal();
    std::vector<float> want;
    for (const F8Kernel& kernel : AllF8Kernels()) {
      if (!kernel.runs_on(DetectCpuFeatures())) continue;
      std::vector<float> out(static_cast<size_t>(t * n + 16), -7.0f);
      kernel.run({.tiles = packed.storage.data(),
                  .n = n,
                  .k = k,
                  .t = t,
                  .x = x.data(),
                  .out = out.data(),
                  .out_stride = n,
                  .bias = bias.data()});
      EXPECT_EQ(out[static_cast<size_t>(t * n)], -7.0f) << kernel.name;
      if (want.empty()) want = out;
      for (int64_t i = 0; i < t * n; ++i) {
        double magnitude = 1;
        for (int64_t c = 0; c < k; ++c) {
          magnitude += std::fabs(double{values[static_cast<size_t>(i % n * k + c)]} *
                                 x[static_cast<size_t>(i / n * k + c)]);
        }
        ASSERT_NEAR(out[static_cast<size_t>(i)], want[static_cast<size_t>(i)],
                    4.0 * std::sqrt(static_cast<double>(k)) * 0x1p-24 * magnitude)
            << kernel.name << " " << i;
      }
    }
  }
}

TEST_P(ScaledMatmul, RefusesWhatItCannotRead) {
  const auto refusal = [&](const MatrixPiece& piece) {
    return PackMatrixFor(*GetParam(), *device_, {&piece, 1}, MatmulPrecision::kFast).status();
  };
  const ScaledWeights f4(kFormats[4], 16, 64, 9), f8(kFormats[0], 256, 256, 10);
  MatrixPiece piece = f4.piece();
  piece.scales = {};
  EXPECT_EQ(refusal(piece).code(), ErrorCode::kUnsupported);
  piece = f4.piece();
  piece.scales.cols = 16;  // NVFP4's
  piece.scales.values.shape = Shape{16, 4};
  EXPECT_EQ(refusal(piece).code(), ErrorCode::kUnsupported);
  piece = f8.piece();
  piece.scales.rows = 64;  // the tensor has fewer scales than that
  EXPECT_EQ(refusal(piece).code(), ErrorCode::kInvalidArgument);
  piece = f8.piece();
  piece.col_begin = 8;
  EXPECT_EQ(refusal(piece).code(), ErrorCode::kInvalidArgument);
}

INSTANTIATE_TEST_SUITE_P(Kernels, ScaledMatmul,
                         testing::ValuesIn(AvailableKernels(DetectCpuFeatures())),
                         [](const auto& test) { return std::string(test.param->name); });

}  // namespace
}  // namespace hayate::ops::matmul
