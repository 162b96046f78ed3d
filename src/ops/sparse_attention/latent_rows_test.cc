#include "ops/sparse_attention/latent_rows.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "ops/sparse_attention/head_rotation.h"
#include "ops/sparse_attention/quantize.h"
#include "ops/sparse_attention/testing/paged_rows.h"

namespace hayate::ops {
namespace {

using testing::RandomFloats;
using testing::ViewOf;

LatentLayerView OneRow(RowFormat format, int32_t width, int32_t rotary,
                       std::vector<std::byte>& bytes) {
  LatentLayerView view = {.format = format, .page_rows = 1, .width = width, .rotary = rotary};
  bytes.assign(static_cast<size_t>(LatentPageBytes(view)), std::byte{0});
  view.base = bytes.data();
  view.page_stride = static_cast<int64_t>(bytes.size());
  return view;
}

TEST(LatentRows, HaveThePublishedSizes) {
  const auto bytes = [](RowFormat format, int32_t width, int32_t rotary) {
    return RowDataBytes(format, width, rotary) + RowScaleBytes(format, width, rotary);
  };
  EXPECT_EQ(bytes(RowFormat::kF32, 512, 64), 2048);
  EXPECT_EQ(bytes(RowFormat::kBF16, 512, 64), 1024);
  EXPECT_EQ(bytes(RowFormat::kFp8, 512, 64), 584);
  EXPECT_EQ(bytes(RowFormat::kFp8All, 512, 64), 528);
  EXPECT_EQ(bytes(RowFormat::kFp4All, 512, 64), 288);
  EXPECT_EQ(bytes(RowFormat::kFp4Key, 128, 64), 68);
  EXPECT_FALSE(HasRowFormat(RowFormat::kFp8, 32, 16));
  EXPECT_FALSE(HasRowFormat(RowFormat::kFp8, 64, 64));
  EXPECT_TRUE(HasRowFormat(RowFormat::kFp8, 128, 64));
}

// A value of the block, quantised with the rules of the specification written out.
float Quantised(float x, float scale, bool fp4) {
  const float y = latent::RoundToBf16(x) / scale;
  if (!fp4) return F8E4M3ToFloat(FloatToF8E4M3(std::clamp(y, -448.0f, 448.0f))) * scale;
  const float magnitudes[] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6};
  float best = 0;
  for (int i = 0; i < 8; ++i) {  // nearest; of two equally near the even code
    const float now = std::fabs(std::fabs(y) - magnitudes[i]);
    const float before = std::fabs(std::fabs(y) - best);
    if (now < before || (now == before && i % 2 == 0)) best = magnitudes[i];
  }
  return std::copysign(best, y) * scale;
}

TEST(LatentRows, PackedRowsRoundAsTheModelsDo) {
  struct Format {
    RowFormat format;
    int32_t width, rotary, block;
    float most;  // of a code
  };
  const Format formats[] = {{RowFormat::kFp8, 192, 64, 64, 448.0f},
                            {RowFormat::kFp8All, 96, 64, 32, 448.0f},
                            {RowFormat::kFp4All, 96, 64, 16, 6.0f},
                            {RowFormat::kFp4Key, 128, 64, 32, 6.0f}};
  Rng rng(3);
  for (const Format& f : formats) {
    for (const float gain : {1e-6f, 0.03f, 1.0f, 900.0f}) {
      std::vector<std::byte> bytes;
      const LatentLayerView view = OneRow(f.format, f.width, f.rotary, bytes);
      std::vector<float> x = RandomFloats(f.width, rng), out(x.size());
      for (float& value : x) value *= gain;
      x[3] = 0.0f;
      StoreLatentRow(view, 0, 0, x.data());
      LoadLatentRow(view, 0, 0, out.data());
      const int32_t quantised = f.format == RowFormat::kFp8 ? f.width - f.rotary : f.width;
      for (int32_t i = 0; i < f.width; ++i) {
        const auto at = static_cast<size_t>(i);
        if (i >= quantised) {
          EXPECT_EQ(out[at], latent::RoundToBf16(x[at]));
          continue;
        }
        float most = 0.0f;
        for (int32_t j = 0; j < f.block; ++j) {
          most = std::max(
              most,
              std::fabs(latent::RoundToBf16(x[static_cast<size_t>(i / f.block * f.block + j)])));
        }
        float scale;
        if (f.format == RowFormat::kFp4All) {
          scale = F8E4M3ToFloat(FloatToF8E4M3(std::max(most, 6.0f / 512) / 6.0f));
        } else {
          const float floor = f.most == 448.0f ? 1e-4f : 0.0f;
          scale = std::exp2(std::ceil(std::log2(std::max(most, floor) / f.most)));
        }
        EXPECT_EQ(out[at], Quantised(x[at], scale, f.most == 6.0f))
            << i << " of format " << static_cast<int>(f.format) << ", gain " << gain;
      }
    }
  }
}

TEST(LatentRows, E2M1TiesGoToTheEvenCode) {
  const std::pair<float, float> ties[] = {{0.25f, 0}, {0.75f, 1}, {1.25f, 1}, {1.75f, 2},
                                          {2.5f, 2},  {3.5f, 4},  {5.0f, 4},  {7.0f, 6}};
  for (const auto& [x, expected] : ties) {
    EXPECT_EQ(kF4E2M1Values[latent::EncodeE2M1(x)], expected) << x;
    EXPECT_EQ(kF4E2M1Values[latent::EncodeE2M1(-x)], -expected) << x;
  }
}

TEST(LatentRows, TheEvenFeatureIsTheLowNibble) {
  std::vector<std::byte> bytes;
  const LatentLayerView view = OneRow(RowFormat::kFp4Key, 32, 0, bytes);
  std::vector<float> x(32, 6.0f);
  x[0] = 1.0f;   // code 2
  x[1] = -3.0f;  // code 13
  StoreLatentRow(view, 0, 0, x.data());
  EXPECT_EQ(bytes[0], std::byte{0xD2});
  EXPECT_EQ(bytes[16], std::byte{127});  // 2^0
}

TEST(LatentRows, HadamardIsSylvestersMatrixAndItsOwnInverse) {
  Rng rng(4);
  for (const int n : {1, 2, 8, 128}) {
    const std::vector<float> x = RandomFloats(n, rng);
    std::vector<float> y = x;
    Hadamard(y.data(), n);
    for (int i = 0; i < n; ++i) {
      double sum = 0;
      for (int j = 0; j < n; ++j) {
        sum += (__builtin_popcount(static_cast<unsigned>(i & j)) % 2 == 0 ? 1 : -1) *
               double{x[static_cast<size_t>(j)]};
      }
      EXPECT_NEAR(y[static_cast<size_t>(i)], sum / std::sqrt(n), 1e-5);
    }
    Hadamard(y.data(), n);
    for (int i = 0; i < n; ++i) {
      EXPECT_NEAR(y[static_cast<size_t>(i)], x[static_cast<size_t>(i)], 1e-5f);
    }
  }
}

TEST(LatentRows, WriteNormsRotatesAndStoresAtTheTargets) {
  Rng rng(5);
  const std::unique_ptr<Device> device = MakeCpuDevice(0);
  Workspace workspace(Buffer::Allocate(*device, 1 << 16).value());
  constexpr int32_t kWidth = 24, kRotary = 6, kCount = 5;
  testing::PagedRows pool(RowFormat::kF32, 3, kWidth, kRotary, {4, 9}, rng);
  const std::vector<int32_t> q_begin = {0, 2, 5}, kv_len = {4, 9};
  const std::vector<int32_t> seq = {0, 0, 1, 1, 1}, index = {2, 3, 6, 7, 8};
  std::vector<float> x = RandomFloats(kCount * kWidth, rng), norm = RandomFloats(kWidth, rng);
  const std::vector<float> original = x;
  std::vector<float> cos_sin;
  for (const int32_t position : index) {
    for (int i = 0; i < kRotary / 2; ++i) cos_sin.push_back(std::cos(0.1f * float(position + i)));
    for (int i = 0; i < kRotary / 2; ++i) cos_sin.push_back(std::sin(0.1f * float(position + i)));
  }
  LatentWrite({}, workspace,
              {.x = ViewOf(x, {kCount, kWidth}),
               .norm = norm.data(),
               .norm_eps = 1e-6f,
               .cos_sin = cos_sin.data(),
               .cache = pool.view(),
               .rows = pool.Rows(q_begin, kv_len),
               .targets = {kCount, seq.data(), index.data()}});
  for (int32_t i = 0; i < kCount; ++i) {
    const auto at = static_cast<size_t>(i);
    double squares = 0;
    for (int c = 0; c < kWidth; ++c) {
      squares += std::pow(double{original[at * kWidth + static_cast<size_t>(c)]}, 2);
    }
    const double inverse = 1 / std::sqrt(squares / kWidth + 1e-6);
    const std::vector<float> stored = pool.Row(seq[at], index[at]);
    const auto normed = [&](int c) {
      return original[at * kWidth + static_cast<size_t>(c)] * inverse *
             norm[static_cast<size_t>(c)];
    };
    for (int c = 0; c < kWidth - kRotary; ++c) {
      EXPECT_NEAR(stored[static_cast<size_t>(c)], normed(c), 1e-5);
    }
    for (int p = 0; p < kRotary / 2; ++p) {
      const double angle = 0.1f * float(index[at] + p);
      const double a = normed(kWidth - kRotary + 2 * p), b = normed(kWidth - kRotary + 2 * p + 1);
      const auto even = static_cast<size_t>(kWidth - kRotary + 2 * p);
      EXPECT_NEAR(stored[even], a * std::cos(angle) - b * std::sin(angle), 1e-5);
      EXPECT_NEAR(stored[even + 1], a * std::sin(angle) + b * std::cos(angle), 1e-5);
    }
  }
}

TEST(HeadRotation, TheInverseUndoesTheRotation) {
  Rng rng(6);
  std::vector<float> x = RandomFloats(3 * 2 * 20, rng), cos_sin;
  for (int t = 0; t < 3; ++t) {
    for (int i = 0; i < 8; ++i) cos_sin.push_back(i < 4 ? std::cos(float(t + i)) : 0.0f);
    for (int i = 0; i < 4; ++i) {
      cos_sin[static_cast<size_t>(t * 8 + 4 + i)] = std::sin(float(t + i));
    }
  }
  const std::vector<float> before = x;
  const TensorView view = ViewOf(x, {3, 2, 20});
  RotateHeads({}, {.x = view, .rotary = 8, .cos_sin = cos_sin.data()});
  EXPECT_NE(x, before);
  RotateHeads({},
              {.x = view, .rotary = 8, .cos_sin = cos_sin.data(), .direction = Rotation::kInverse});
  for (size_t i = 0; i < x.size(); ++i) EXPECT_NEAR(x[i], before[i], 1e-5f);
}

TEST(HeadRotation, FrequenciesOfCompressedLayersHaveTheirCheckValues) {
  const RopeConfig config = {.head_dim = 64,
                             .rotary_dim = 64,
                             .base = 160000.0f,
                             .pairing = RopePairing::kInterleaved,
                             .scaling = RopeScaling::kYarn,
                             .factor = 16.0f,
                             .original_context = 65536,
                             .attention_factor = 1.0f};
  const RopeFrequencies frequencies = ComputeRopeFrequencies(config, 1 << 20).value();
  const std::pair<size_t, double> expected[] = {{0, 1.0},          {15, 3.635538583622e-3},
                                                {16, 2.265625e-3}, {20, 2.969777783e-4},
                                                {24, 1.953125e-5}, {31, 5.680529037e-7}};
  for (const auto& [i, value] : expected) {
    EXPECT_NEAR(frequencies.inv_freq[i] / value, 1.0, 1e-5) << i;
  }
  EXPECT_EQ(frequencies.attention_factor, 1.0f);
}

}  // namespace
}  // namespace hayate::ops
