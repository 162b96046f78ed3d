#include <gtest/gtest.h>

#include <cmath>

#include "ops/rope/rope.h"
#include "ops/testing/gpu.h"

namespace hayate::ops {
namespace {

using namespace testing;

class RopeGpu : public GpuTest {};

TEST_F(RopeGpu, RowsAgreeWithDoubleAtAnyPosition) {
  const RopeFrequencies frequencies =
      ComputeRopeFrequencies({.head_dim = 128, .rotary_dim = 128, .base = 500000.0f}, 1 << 20)
          .value();
  const std::vector<int32_t> positions = {0, 1, 7, 1000, 32767, 131071, 131072, 1048575};
  const auto rows = static_cast<int64_t>(positions.size());
  const auto positions_array = ToDevice(positions);
  const auto inv_freq = ToDevice(frequencies.inv_freq);
  const auto out = Poisoned<float>(positions.size() * 128);
  RopeRows(stream_, {.out = out.View(DType::kF32, {rows, 128}),
                     .positions = positions_array.data(),
                     .inv_freq = inv_freq.data(),
                     .attention_factor = 1.25f});
  const std::vector<float> got = ToHost(out);
  for (size_t t = 0; t < positions.size(); ++t) {
    for (size_t i = 0; i < 64; ++i) {
      const double angle = double{frequencies.inv_freq[i]} * positions[t];
      EXPECT_NEAR(got[t * 128 + i], 1.25 * std::cos(angle), 1.25 * 0x1p-24 + 1e-10) << t;
      EXPECT_NEAR(got[t * 128 + 64 + i], 1.25 * std::sin(angle), 1.25 * 0x1p-24 + 1e-10) << t;
    }
  }
}

struct Case {
  int64_t tokens, q_heads, k_heads;
  int32_t head_dim, rotary_dim;
  RopePairing pairing;
  bool norm, by_position;
};

TEST_F(RopeGpu, TurnsAndNormsAsTheReferenceDoes) {
  const Case cases[] = {
      {5, 32, 8, 128, 128, RopePairing::kHalves, true, false},
      {1, 9, 3, 64, 64, RopePairing::kInterleaved, false, false},
      {3, 2, 1, 96, 96, RopePairing::kHalves, true, true},
      {7, 4, 4, 80, 32, RopePairing::kHalves, true, true},
      {2, 3, 1, 256, 64, RopePairing::kInterleaved, true, false},
      {33, 1, 1, 256, 256, RopePairing::kHalves, false, true},
      {4, 5, 1, 2, 2, RopePairing::kHalves, true, false},
      {3, 5, 2, 6, 4, RopePairing::kInterleaved, false, false},
  };
  for (const Case& c : cases) {
    for (const DType type : {DType::kF32, DType::kBF16}) {
      const int64_t stride = (c.q_heads + 2 * c.k_heads) * c.head_dim;
      const auto count = static_cast<size_t>(c.tokens * stride);
      std::vector<float> qkv = Rounded(RandomNormals(count, 1), type);
      const std::vector<float> q_norm = RandomNormals(static_cast<size_t>(c.head_dim), 2),
                               k_norm = RandomNormals(static_cast<size_t>(c.head_dim), 3),
                               cos_sin = RandomNormals(static_cast<size_t>(50 * c.rotary_dim), 4);
      std::vector<int32_t> positions;
      for (int64_t t = 0; t < c.tokens; ++t) positions.push_back(static_cast<int32_t>(t * 7 % 50));
      const auto array = ToDevice(qkv, type);
      const auto q_norm_array = ToDevice(q_norm), k_norm_array = ToDevice(k_norm),
                 cos_sin_array = ToDevice(cos_sin);
      const auto positions_array = ToDevice(positions);
      const auto args_for = [&](std::byte* data, DType dtype) {
        const int64_t k_offset = c.q_heads * c.head_dim * Info(dtype).block_bytes;
        return RopeArgs{.q = {data, dtype, {c.tokens, c.q_heads, c.head_dim}},
                        .k = {data + k_offset, dtype, {c.tokens, c.k_heads, c.head_dim}},
                        .q_row_stride = stride,
                        .k_row_stride = stride,
                        .rotary_dim = c.rotary_dim,
                        .pairing = c.pairing};
      };
      RopeArgs args = args_for(array.data(), type);
      args.cos_sin = cos_sin_array.data();
      if (c.by_position) args.positions = positions_array.data();
      if (c.norm) args.q_norm = q_norm_array.data(), args.k_norm = k_norm_array.data();
      Rope(stream_, args);
      RopeArgs host = args_for(reinterpret_cast<std::byte*>(qkv.data()), DType::kF32);
      host.cos_sin = cos_sin.data();
      if (c.by_position) host.positions = positions.data();
      if (c.norm) host.q_norm = q_norm.data(), host.k_norm = k_norm.data();
      RopeReference(host);
      const std::vector<float> got = FloatsToHost(array, type);
      // Sums of two products: relative to their size, not to what is left of them.
      for (size_t i = 0; i < count; ++i) {
        ASSERT_NEAR(got[i], qkv[i], 40 * Epsilon(type) * (1.0 + std::abs(qkv[i])) / 8)
            << c.head_dim << " at " << i;
      }
    }
  }
}

}  // namespace
}  // namespace hayate::ops
