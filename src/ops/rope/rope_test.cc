#include "ops/rope/rope.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>
#include <vector>

#include "base/rng.h"
#include "ops/rope/detail/kernels.h"

namespace hayate::ops {
namespace {

std::vector<float> Table(const RopeConfig& config, int32_t num_positions) {
  std::vector<int32_t> positions(static_cast<size_t>(num_positions));
  std::iota(positions.begin(), positions.end(), 0);
  std::vector<float> table(positions.size() * static_cast<size_t>(config.rotary_dim));
  const RopeFrequencies frequencies = ComputeRopeFrequencies(config, num_positions).value();
  RopeRows({}, {.out = {reinterpret_cast<std::byte*>(table.data()), DType::kF32,
                        Shape{num_positions, config.rotary_dim}},
                .positions = positions.data(),
                .inv_freq = frequencies.inv_freq.data(),
                .attention_factor = frequencies.attention_factor});
  return table;
}

struct Case {
  int64_t tokens, q_heads, k_heads;
  int32_t head_dim, rotary_dim;
  RopePairing pairing;
  bool norm;
};

void ExpectMatchesReference(const RopeKernels& kernels, const Case& c) {
  Rng rng(static_cast<uint64_t>(c.head_dim + c.rotary_dim));
  RopeConfig config{.head_dim = c.head_dim, .rotary_dim = c.rotary_dim};
  constexpr int32_t kMaxPosition = 100;
  const std::vector<float> table = Table(config, kMaxPosition);

  // q, k and something else in one row, as a qkv buffer has it.
  const int64_t stride = (c.q_heads + c.k_heads) * c.head_dim + 5;
  std::vector<float> buffer(static_cast<size_t>(c.tokens * stride)),
      weight(static_cast<size_t>(c.head_dim));
  for (float& value : buffer) value = rng.NextNormal();
  for (float& value : weight) value = 1.0f + 0.1f * rng.NextNormal();
  std::vector<int32_t> positions;
  for (int64_t t = 0; t < c.tokens; ++t)
    positions.push_back(static_cast<int32_t>(rng.Below(kMaxPosition)));

  std::vector<float> expected = buffer;
  const auto args = [&](std::vector<float>& data) {
    std::byte* q = reinterpret_cast<std::byte*>(data.data());
    std::byte* k = reinterpret_cast<std::byte*>(data.data() + c.q_heads * c.head_dim);
    return RopeArgs{.q = {q, DType::kF32, Shape{c.tokens, c.q_heads, c.head_dim}},
                    .k = {k, DType::kF32, Shape{c.tokens, c.k_heads, c.head_dim}},
                    .q_row_stride = stride,
                    .k_row_stride = stride,
                    .positions = positions.data(),
                    .cos_sin = table.data(),
                    .rotary_dim = c.rotary_dim,
                    .pairing = c.pairing,
                    .q_norm = c.norm ? weight.data() : nullptr,
                    .k_norm = c.norm ? weight.data() : nullptr,
                    .norm_eps = 1e-6f};
  };
  RopeReference(args(expected));
  RopeWith(kernels, args(buffer));
  // A turn is two products and a sum; the norm adds its own few roundings.
  for (size_t i = 0; i < buffer.size(); ++i)
    ASSERT_NEAR(buffer[i], expected[i], 2e-6f) << kernels.name;
}

TEST(Rope, EveryKernelMatchesTheReference) {
  for (const RopeKernels& kernels : AllRopeKernels()) {
    if (!kernels.runs_on(DetectCpuFeatures())) continue;
    for (const RopePairing pairing : {RopePairing::kHalves, RopePairing::kInterleaved}) {
      for (const bool norm : {false, true}) {
        ExpectMatchesReference(kernels, {3, 9, 3, 64, 64, pairing, norm});
        ExpectMatchesReference(kernels, {2, 4, 4, 24, 24, pairing, norm});
        ExpectMatchesReference(kernels, {2, 1, 1, 128, 40, pairing, norm});
        ExpectMatchesReference(kernels, {1, 2, 1, 6, 2, pairing, norm});
        ExpectMatchesReference(kernels, {2, 5, 0, 16, 14, pairing, norm});
      }
    }
  }
}

TEST(Rope, PositionZeroIsTheIdentityAndTheScoreDependsOnTheDistanceAlone) {
  const RopeConfig config{.head_dim = 8, .rotary_dim = 8};
  const std::vector<float> table = Table(config, 50);
  const auto score = [&](int32_t q_position, int32_t k_position) {
    std::vector<float> q = {1, 2, 3, 4, 5, 6, 7, 8}, k = {8, -7, 6, -5, 4, -3, 2, -1};
    const auto view = [](std::vector<float>& x) {
      return TensorView{reinterpret_cast<std::byte*>(x.data()), DType::kF32, Shape{1, 1, 8}};
    };
    RopeArgs args{.q = view(q),
                  .k = {nullptr, DType::kF32, Shape{0, 1, 8}},
                  .cos_sin = table.data(),
                  .rotary_dim = 8};
    args.positions = &q_position;
    Rope({}, args);
    args.q = view(k);
    args.positions = &k_position;
    Rope({}, args);
    double sum = 0;
    for (size_t i = 0; i < 8; ++i) sum += double{q[i]} * k[i];
    return sum;
  };
  EXPECT_DOUBLE_EQ(score(0, 0), 8 - 14 + 18 - 20 + 20 - 18 + 14 - 8);
  EXPECT_NEAR(score(3, 10), score(40, 47), 1e-4);
}

TEST(RopeFrequencies, LinearScalingDividesAndKeepsTheRest) {
  RopeConfig config{.head_dim = 4, .rotary_dim = 4, .base = 100.0f};
  EXPECT_EQ(ComputeRopeFrequencies(config, 10)->inv_freq, (std::vector<float>{1.0f, 0.1f}));
  config.scaling = RopeScaling::kLinear;
  config.factor = 4.0f;
  EXPECT_EQ(ComputeRopeFrequencies(config, 10)->inv_freq, (std::vector<float>{0.25f, 0.025f}));
}

TEST(RopeFrequencies, Llama3KeepsShortWavelengthsAndStretchesLongOnes) {
  const RopeConfig config{.head_dim = 128,
                          .rotary_dim = 128,
                          .base = 500000.0f,
                          .scaling = RopeScaling::kLlama3,
                          .factor = 8.0f,
                          .original_context = 8192};
  const RopeFrequencies scaled = ComputeRopeFrequencies(config, 131072).value();
  RopeConfig plain = config;
  plain.scaling = RopeScaling::kNone;
  const RopeFrequencies original = ComputeRopeFrequencies(plain, 131072).value();
  for (size_t i = 0; i < 64; ++i) {
    const double wavelength = 2 * M_PI / original.inv_freq[i];
    if (wavelength < 8192.0 / 4) {
      EXPECT_EQ(scaled.inv_freq[i], original.inv_freq[i]);
    } else if (wavelength > 8192.0) {
      EXPECT_FLOAT_EQ(scaled.inv_freq[i], original.inv_freq[i] / 8);
    } else {
      EXPECT_LT(scaled.inv_freq[i], original.inv_freq[i]);
      EXPECT_GT(scaled.inv_freq[i], original.inv_freq[i] / 8);
    }
  }
}

TEST(RopeFrequencies, YarnScalesAttentionByItsLogarithm) {
  RopeConfig config{.head_dim = 64,
                    .rotary_dim = 64,
                    .base = 10000.0f,
                    .scaling = RopeScaling::kYarn,
                    .factor = 16.0f,
                    .original_context = 4096};
  EXPECT_FLOAT_EQ(ComputeRopeFrequencies(config, 65536)->attention_factor,
                  static_cast<float>(0.1 * std::log(16.0) + 1.0));
  config.mscale = 1.0f;
  config.mscale_all_dim = 1.0f;
  EXPECT_FLOAT_EQ(ComputeRopeFrequencies(config, 65536)->attention_factor, 1.0f);
  config.attention_factor = 1.25f;
  EXPECT_FLOAT_EQ(ComputeRopeFrequencies(config, 65536)->attention_factor, 1.25f);
}

TEST(RopeFrequencies, DynamicScalingLeavesTheOriginalContextAlone) {
  RopeConfig config{.head_dim = 16, .rotary_dim = 16};
  const RopeFrequencies plain = ComputeRopeFrequencies(config, 2048).value();
  config.scaling = RopeScaling::kDynamicNtk;
  config.factor = 2.0f;
  config.original_context = 2048;
  EXPECT_EQ(ComputeRopeFrequencies(config, 2048)->inv_freq, plain.inv_freq);
  EXPECT_LT(ComputeRopeFrequencies(config, 8192)->inv_freq.back(), plain.inv_freq.back());
}

TEST(RopeFrequencies, NumbersThatMakeNoRotationAreRefused) {
  const RopeConfig good{.head_dim = 8, .rotary_dim = 8};
  const auto refused = [](RopeConfig config) {
    return ComputeRopeFrequencies(config, 10).status().code() == ErrorCode::kInvalidArgument;
  };
  RopeConfig bad = good;
  bad.rotary_dim = 7;
  EXPECT_TRUE(refused(bad));
  bad = good;
  bad.rotary_dim = 10;
  EXPECT_TRUE(refused(bad));
  bad = good;
  bad.base = NAN;
  EXPECT_TRUE(refused(bad));
  bad = good;
  bad.factor = 0.0f;
  EXPECT_TRUE(refused(bad));
  bad = good;
  bad.scaling = RopeScaling::kLlama3;
  EXPECT_TRUE(refused(bad));
  bad = good;
  bad.freq_factors = {1.0f};
  EXPECT_TRUE(refused(bad));
}

}  // namespace
}  // namespace hayate::ops
