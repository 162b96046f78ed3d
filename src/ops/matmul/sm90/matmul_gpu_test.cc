#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "base/rng.h"
#include "ops/matmul/matmul.h"
#include "ops/matmul/testing/random_weights.h"
#include "tensor/float16.h"
#include "weights/dequantize.h"

namespace hayate::ops {
namespace {

using matmul::RandomWeights;

// Scales of their own for fp8 codes: blocks of rows × cols.
struct Scales {
  int32_t rows, cols;
  std::vector<float> values;
  BlockScales view;

  Scales(int64_t n, int64_t k, int32_t block_rows, int32_t block_cols, uint64_t seed)
      : rows(block_rows), cols(block_cols) {
    const int64_t r = (n + rows - 1) / rows, c = (k + cols - 1) / cols;
    Rng rng(seed);
    for (int64_t i = 0; i < r * c; ++i) values.push_back(0.01f + 0.02f * rng.NextFloat());
    view = {{reinterpret_cast<const std::byte*>(values.data()), DType::kF32, {r, c}}, rows, cols};
  }
};

class MatmulGpuTest : public testing::Test {
 protected:
  MatmulGpuTest()
      : device_(MakeCudaDevice({.index = 0, .memory_fraction = 0.1}).value()),
        stream_(device_->NewStream()),
        done_(device_->NewEvent()),
        workspace_(Buffer::Allocate(*device_, size_t{1} << 30).value()) {}

  void Sync() {
    device_->Record(done_, stream_);
    device_->Synchronize(done_);
    ASSERT_TRUE(device_->status().ok()) << device_->status().message();
  }

  PackedMatrix Pack(std::span<const MatrixPiece> pieces,
                    MatmulPrecision precision = MatmulPrecision::kFast) {
    auto packed = PackMatrix(*device_, pieces, precision);
    EXPECT_TRUE(packed.ok()) << packed.status().message();
    device_->FinishLoading();
    return std::move(packed).value();
  }

  struct Form {
    DType x = DType::kBF16;
    DType out = DType::kF32;
    const float* bias = nullptr;
    int64_t extra_stride = 0;
  };
  // out [T, N] of the device, as f32; what lies between the rows must stay untouched.
  std::vector<float> Run(const PackedMatrix& w, const std::vector<float>& x, int64_t t,
                         const Form& form) {
    const int64_t stride = w.n + form.extra_stride;
    Buffer x_device = ToDevice(x, form.x);
    const size_t out_bytes = static_cast<size_t>(t * stride * Info(form.out).block_bytes);
    Buffer host = Buffer::Allocate(*device_, out_bytes, MemoryKind::kPinned).value();
    std::memset(host.data(), 0xFF, out_bytes);
    Buffer out = Buffer::Allocate(*device_, out_bytes).value();
    device_->Copy(stream_, out.data(), host.data(), out_bytes);
    Buffer bias;
    if (form.bias != nullptr) {
      bias = ToDevice(std::vector<float>(form.bias, form.bias + w.n), DType::kF32);
    }
    Matmul(stream_, workspace_,
           {.out = {out.data(), form.out, {t, w.n}},
            .x = TensorView{x_device.data(), form.x, {t, w.k}},
            .w = &w,
            .bias = reinterpret_cast<const float*>(bias.data()),
            .out_row_stride = stride});
    EXPECT_EQ(workspace_.mark(), 0u);
    device_->Copy(stream_, host.data(), out.data(), out_bytes);
    Sync();
    std::vector<float> result;
    for (int64_t row = 0; row < t; ++row) {
      for (int64_t i = 0; i < stride; ++i) {
        const float value = At(host.data(), form.out, row * stride + i);
        if (i < w.n) {
          result.push_back(value);
        } else {
          EXPECT_TRUE(std::isnan(value)) << "row " << row << " wrote past its end";
        }
      }
    }
    return result;
  }

  static float At(const std::byte* data, DType dtype, int64_t index) {
    if (dtype == DType::kF32) return reinterpret_cast<const float*>(data)[index];
    return Bf16ToFloat(reinterpret_cast<const uint16_t*>(data)[index]);
  }

  Buffer ToDevice(const std::vector<float>& values, DType dtype) {
    std::vector<std::byte> bytes(values.size() * static_cast<size_t>(Info(dtype).block_bytes));
    for (size_t i = 0; i < values.size(); ++i) {
      if (dtype == DType::kF32) {
        std::memcpy(&bytes[4 * i], &values[i], 4);
      } else {
        const uint16_t bits = FloatToBf16(values[i]);
        std::memcpy(&bytes[2 * i], &bits, 2);
      }
    }
    Buffer buffer = Buffer::Allocate(*device_, std::max<size_t>(bytes.size(), 16)).value();
    device_->Upload(buffer.data(), bytes.data(), bytes.size());
    device_->FinishLoading();
    return buffer;
  }

  std::unique_ptr<Device> device_;
  Stream stream_;
  Event done_;
  Workspace workspace_;
};

std::vector<float> Activations(int64_t count, uint64_t seed) {
  Rng rng(seed);
  std::vector<float> x(static_cast<size_t>(count));
  // Values of bf16, so that the reference sees what the device sees.
  for (float& value : x) value = Bf16ToFloat(FloatToBf16(rng.NextNormal()));
  return x;
}

std::vector<float> Dequantized(const RandomWeights& weights, const BlockScales& scales = {}) {
  const ConstTensorView view = weights.view();
  std::vector<float> out(static_cast<size_t>(view.shape.num_elements()));
  weights::Dequantize(view, out);
  if (scales.empty()) return out;
  for (size_t i = 0; i < out.size(); ++i) {
    const int64_t row = static_cast<int64_t>(i) / view.cols();
    out[i] *= scales.At(row, static_cast<int64_t>(i) % view.cols());
  }
  return out;
}

// ‖out − reference‖ / ‖reference‖.
double RelativeError(const std::vector<float>& out, const std::vector<float>& weights,
                     const std::vector<float>& x, const float* bias, int64_t t, int64_t k) {
  const int64_t n = static_cast<int64_t>(weights.size()) / k;
  std::vector<float> expected(static_cast<size_t>(t * n));
  MatmulReference(expected.data(), x.data(), weights.data(), bias, t, n, k);
  double difference = 0, norm = 0;
  for (size_t i = 0; i < expected.size(); ++i) {
    const double d = static_cast<double>(out[i]) - static_cast<double>(expected[i]);
    difference += d * d;
    norm += static_cast<double>(expected[i]) * static_cast<double>(expected[i]);
  }
  return std::sqrt(difference / norm);  // NaN passes no compare
}

constexpr int64_t kTokens[] = {1, 7, 16, 33, 64, 100, 200};
// Rounding of bf16 results, and of sums in another order.
constexpr double kBf16Rounding = 3e-3, kF32Rounding = 1e-5;
// Activations in e4m3 under a scale per group keep 3 bits of mantissa: 2^−4 / √3 at most.
constexpr double kFp8Rounding = 0.036;

TEST_F(MatmulGpuTest, EveryTypeOfWeightsMultipliesAsItsDefinition) {
  for (const DType dtype :
       {DType::kF32, DType::kF16, DType::kBF16, DType::kF8E4M3, DType::kF8E5M2, DType::kQ4_0,
        DType::kQ4_1, DType::kQ5_0, DType::kQ5_1, DType::kQ8_0, DType::kIQ4_NL, DType::kMXFP4,
        DType::kQ2_K, DType::kQ3_K, DType::kQ4_K, DType::kQ5_K, DType::kQ6_K}) {
    const int64_t k = dtype >= DType::kQ2_K ? 768 : 224, n = 150;
    const RandomWeights weights(dtype, n, k, 1);
    const MatrixPiece piece = MatrixPiece::Whole(weights.view());
    const PackedMatrix packed = Pack({&piece, 1});
    const std::vector<float> bias = Activations(n, 2);
    for (const int64_t t : kTokens) {
      const std::vector<float> x = Activations(t * k, 3);
      const auto out = Run(packed, x, t, {.bias = t % 2 == 0 ? bias.data() : nullptr});
      // Weights are rounded to bf16.
      EXPECT_LT(
          RelativeError(out, Dequantized(weights), x, t % 2 == 0 ? bias.data() : nullptr, t, k),
          kBf16Rounding)
          << Info(dtype).name << " T " << t;
    }
  }
}

TEST_F(MatmulGpuTest, TheExactModeKeepsFp32) {
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kQ4_K, DType::kQ8_0}) {
    const int64_t k = 512, n = 77;
    const RandomWeights weights(dtype, n, k, 4);
    const MatrixPiece piece = MatrixPiece::Whole(weights.view());
    const PackedMatrix packed = Pack({&piece, 1}, MatmulPrecision::kExact);
    for (const int64_t t : {1, 45}) {
      const std::vector<float> x = Activations(t * k, 5);
      const auto out = Run(packed, x, t, {.x = DType::kF32, .extra_stride = 3});
      EXPECT_LT(RelativeError(out, Dequantized(weights), x, nullptr, t, k), kF32Rounding)
          << Info(dtype).name;
    }
  }
}

TEST_F(MatmulGpuTest, Fp8WeightsWithScalesMultiplyAsTheirDefinition) {
  struct Case {
    int32_t rows, cols;
  };
  constexpr int64_t kN = 384, kK = 1024;
  for (const Case& c : {Case{128, 128}, Case{1, kK}, Case{kN, kK}, Case{32, 32}}) {
    const RandomWeights weights(DType::kF8E4M3, kN, kK, 6);
    const Scales scales(kN, kK, c.rows, c.cols, 7);
    MatrixPiece piece = MatrixPiece::Whole(weights.view());
    piece.scales = scales.view;
    const PackedMatrix packed = Pack({&piece, 1});
    for (const int64_t t : kTokens) {
      const std::vector<float> x = Activations(t * kK, 8);
      for (const DType out_dtype : {DType::kF32, DType::kBF16}) {
        const auto out = Run(packed, x, t, {.out = out_dtype, .extra_stride = 8});
        EXPECT_LT(RelativeError(out, Dequantized(weights, scales.view), x, nullptr, t, kK),
                  kFp8Rounding)
            << c.rows << " x " << c.cols << " T " << t;
      }
    }
  }
}

TEST_F(MatmulGpuTest, FloatWeightsBecomeFp8OnRequest) {
  constexpr int64_t kN = 300, kK = 512;
  const RandomWeights weights(DType::kBF16, kN, kK, 9);
  const MatrixPiece piece = MatrixPiece::Whole(weights.view());
  const PackedMatrix packed = Pack({&piece, 1}, MatmulPrecision::kFp8);
  EXPECT_EQ(WantedFp8(packed), Fp8Scaling::kPerToken);
  EXPECT_LT(static_cast<int64_t>(packed.storage.size()), kN * kK * 3 / 2);
  for (const int64_t t : {1, 64, 200}) {
    const std::vector<float> x = Activations(t * kK, 10);
    const auto out = Run(packed, x, t, {});
    EXPECT_LT(RelativeError(out, Dequantized(weights), x, nullptr, t, kK), 1.5 * kFp8Rounding);
  }
}

TEST_F(MatmulGpuTest, ARowDoesNotDependOnItsBatchMatesInTheFixedOrder) {
  constexpr int64_t kN = 1000, kK = 768, kMost = 300;
  for (const DType dtype : {DType::kBF16, DType::kF8E4M3, DType::kQ4_K}) {
    const RandomWeights weights(dtype, kN, kK, 19);
    const Scales scales(kN, kK, 128, 128, 20);
    MatrixPiece piece = MatrixPiece::Whole(weights.view());
    if (dtype == DType::kF8E4M3) piece.scales = scales.view;
    PackedMatrix packed = Pack({&piece, 1});
    packed.sum_order = SumOrder::kFixed;
    const std::vector<float> x = Activations(kMost * kK, 21);
    const std::vector<float> all = Run(packed, x, kMost, {});
    for (const int64_t t : {1, 16, 17, 64, 65, 128, 129}) {
      const std::vector<float> first(x.begin(), x.begin() + t * kK);
      const std::vector<float> out = Run(packed, first, t, {});
      EXPECT_TRUE(std::equal(out.begin(), out.end(), all.begin()))
          << Info(dtype).name << " T " << t;
    }
  }
}

// Enough tokens and features that tiles of 256 tokens fill the chip.
TEST_F(MatmulGpuTest, BlockScaledProductsOfManyTokensAreThoseOfFew) {
  constexpr int64_t kN = 4096, kK = 384, kMost = 1000, kFew = 16;
  const RandomWeights weights(DType::kF8E4M3, kN, kK, 22);
  const Scales scales(kN, kK, 128, 128, 23);
  MatrixPiece piece = MatrixPiece::Whole(weights.view());
  piece.scales = scales.view;
  PackedMatrix packed = Pack({&piece, 1});
  packed.sum_order = SumOrder::kFixed;
  const std::vector<float> x = Activations(kMost * kK, 24);
  const std::vector<float> many = Run(packed, x, kMost, {.out = DType::kBF16, .extra_stride = 8});
  EXPECT_LT(RelativeError(many, Dequantized(weights, scales.view), x, nullptr, kMost, kK),
            kFp8Rounding);
  for (const int64_t first : {int64_t{0}, int64_t{500}, kMost - kFew}) {
    const std::vector<float> rows(x.begin() + first * kK, x.begin() + (first + kFew) * kK);
    const std::vector<float> few = Run(packed, rows, kFew, {.out = DType::kBF16});
    EXPECT_TRUE(std::equal(few.begin(), few.end(), many.begin() + first * kN)) << "row " << first;
  }
}

TEST_F(MatmulGpuTest, ShardsAndJoinedPiecesKeepTheirRows) {
  constexpr int64_t kN = 256, kK = 512;
  const RandomWeights a(DType::kF8E4M3, kN, kK, 11), b(DType::kQ4_0, kN, kK, 12),
      c(DType::kBF16, kN, kK, 13);
  const Scales scales(kN, kK, 128, 128, 14);
  // Columns [128, 384) of rows [128, 256), every other row, and all rows.
  MatrixPiece pieces[] = {
      {a.view(), 128, 256, 128, 384}, {b.view(), 1, 255, 128, 384}, {c.view(), 0, kN, 128, 384}};
  pieces[0].scales = scales.view;
  pieces[1].row_step = 2;
  const PackedMatrix packed = Pack(pieces);
  EXPECT_EQ(packed.parts.size(), 3u);
  std::vector<float> expected_weights;
  const auto append = [&](const std::vector<float>& weights, const MatrixPiece& piece) {
    for (int64_t row = piece.row_begin; row < piece.row_end; row += piece.row_step) {
      for (int64_t column = 128; column < 384; ++column) {
        expected_weights.push_back(weights[static_cast<size_t>(row * kK + column)]);
      }
    }
  };
  append(Dequantized(a, scales.view), pieces[0]);
  append(Dequantized(b), pieces[1]);
  append(Dequantized(c), pieces[2]);
  for (const int64_t t : {3, 150}) {
    const std::vector<float> x = Activations(t * 256, 15);
    EXPECT_LT(RelativeError(Run(packed, x, t, {}), expected_weights, x, nullptr, t, 256),
              kFp8Rounding);
  }
}

TEST_F(MatmulGpuTest, RowsThatTheCopyEngineCannotReadStillMultiply) {
  constexpr int64_t kN = 33, kK = 77;
  const RandomWeights weights(DType::kBF16, kN, kK, 16);
  const MatrixPiece piece = MatrixPiece::Whole(weights.view());
  const PackedMatrix packed = Pack({&piece, 1});
  for (const int64_t t : {1, 140}) {
    const std::vector<float> x = Activations(t * kK, 17);
    EXPECT_LT(RelativeError(Run(packed, x, t, {}), Dequantized(weights), x, nullptr, t, kK),
              kF32Rounding);
  }
}

TEST_F(MatmulGpuTest, BadPiecesAreRefused) {
  const RandomWeights weights(DType::kQ4_K, 4, 512, 18);
  for (const MatrixPiece& piece :
       {MatrixPiece{weights.view(), 0, 4, 0, 128}, MatrixPiece{weights.view(), 0, 5, 0, 512},
        MatrixPiece{weights.view(), 2, 1, 0, 512}, MatrixPiece{weights.view(), 0, 4, 256, 256}}) {
    EXPECT_EQ(PackMatrix(*device_, {&piece, 1}, MatmulPrecision::kFast).status().code(),
              ErrorCode::kInvalidArgument);
  }
  std::vector<std::byte> integers(64);
  const MatrixPiece piece = MatrixPiece::Whole({integers.data(), DType::kI32, {4, 4}});
  EXPECT_EQ(PackMatrix(*device_, {&piece, 1}, MatmulPrecision::kFast).status().code(),
            ErrorCode::kUnsupported);
}

}  // namespace
}  // namespace hayate::ops
