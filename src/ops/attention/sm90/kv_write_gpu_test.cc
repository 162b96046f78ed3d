#include <gtest/gtest.h>

#include <cmath>
#include <utility>
#include <vector>

#include "ops/attention/kv_layout.h"
#include "ops/attention/rope_kv_write.h"
#include "ops/testing/gpu.h"

namespace hayate::ops {
namespace {

class KvWriteGpuTest : public testing::GpuTest {
 protected:
  testing::DeviceArray<std::byte> PoisonedPages(int64_t pages, int64_t page_bytes) {
    return Poisoned<std::byte>(static_cast<size_t>(pages * page_bytes));
  }
};

struct RopeCase {
  DType activations = DType::kBF16, cache = DType::kBF16;
  int32_t head_dim = 128, rotary_dim = 128;
  RopePairing pairing = RopePairing::kHalves;
  bool norm = false;
  int32_t gap = 0;  // elements between tokens
};

// q, k and v as slices of one qkv buffer [T, width]; rows of one and of several tokens, a padded
// token whose page is −1.
TEST_F(KvWriteGpuTest, RopeKvWriteTurnsAndAppendsAsTheDefinition) {
  const std::vector<RopeCase> cases = {
      {},
      {.norm = true},
      {.activations = DType::kF32, .cache = DType::kF32, .norm = true},
      {.cache = DType::kF8E4M3, .head_dim = 64, .rotary_dim = 64},
      {.cache = DType::kF16, .head_dim = 80, .rotary_dim = 32, .norm = true},
      {.head_dim = 256, .rotary_dim = 64, .pairing = RopePairing::kInterleaved, .norm = true},
      {.head_dim = 192, .rotary_dim = 192, .norm = true},
      {.norm = true, .gap = 2},
      {.cache = DType::kF8E4M3, .head_dim = 36, .rotary_dim = 12, .norm = true},
      {.head_dim = 100, .rotary_dim = 100, .pairing = RopePairing::kInterleaved, .norm = true},
      {.activations = DType::kF32,
       .head_dim = 96,
       .rotary_dim = 96,
       .pairing = RopePairing::kInterleaved}};
  for (const RopeCase& c : cases) {
    SCOPED_TRACE(c.head_dim);
    constexpr int32_t kHeads = 6, kKvHeads = 2, kPage = 16, kTokens = 8, kPages = 5;
    const int32_t d = c.head_dim;
    const int64_t width = int64_t{kHeads + 2 * kKvHeads} * d + c.gap;
    Rng rng(7);
    std::vector<float> qkv(static_cast<size_t>(kTokens * width)), norms(static_cast<size_t>(2 * d)),
        cos_sin(static_cast<size_t>(kTokens * c.rotary_dim));
    for (float& x : qkv) x = rng.NextNormal() * 2.0f;
    qkv = testing::Rounded(std::move(qkv), c.activations);
    for (float& x : norms) x = 1.0f + 0.2f * rng.NextNormal();
    for (float& x : cos_sin) x = rng.NextNormal();
    const std::vector<int32_t> q_begin = {0, 1, 6, 7, 8}, kv_len = {31, 20, 1, 1};
    const std::vector<int32_t> positions = {30, 15, 16, 17, 18, 19, 0, 0};
    const std::vector<int32_t> rope_positions = {0, 1, 2, 3, 4, 5, 6, 7};
    const std::vector<int32_t> table = {4, 0, 2, 3, 1, -1, -1, -1};

    const auto args = [&](std::byte* data, DType dtype, const float* norm, const float* turns,
                          const int32_t* rope_at, const int32_t* at, AttentionRows rows,
                          KvLayerView cache) {
      const int64_t element = Info(dtype).block_bytes;
      const TensorView q{data, dtype, Shape{kTokens, kHeads, d}};
      const TensorView k{data + kHeads * d * element, dtype, Shape{kTokens, kKvHeads, d}};
      const TensorView v{data + (kHeads + kKvHeads) * d * element, dtype,
                         Shape{kTokens, kKvHeads, d}};
      return RopeKvWriteArgs{.rope = {q, k, width, width, rope_at, turns, c.rotary_dim, c.pairing,
                                      c.norm ? norm : nullptr, c.norm ? norm + d : nullptr, 1e-6f},
                             .write = {k, v, width, width, at, rows, cache}};
    };
    const AttentionRows host_rows{4, q_begin.data(), kv_len.data(), table.data(), 2};

    const int64_t page_bytes = KvLayerPageBytes(c.cache, kPage, kKvHeads, d);
    const auto pool = PoisonedPages(kPages, page_bytes), data = ToDevice(qkv, c.activations);
    const auto norm = ToDevice(norms), turns = ToDevice(cos_sin);
    const auto begin = ToDevice(q_begin), length = ToDevice(kv_len), at = ToDevice(positions),
               rope_at = ToDevice(rope_positions), pages = ToDevice(table);
    RopeKvWrite(stream_, args(data.data(), c.activations, norm.data(), turns.data(), rope_at.data(),
                              at.data(), {4, begin.data(), length.data(), pages.data(), 2},
                              {pool.data(), page_bytes, c.cache, kPage, kKvHeads, d}));
    const std::vector<float> turned = FloatsToHost(data, c.activations);
    const std::vector<float> written = FloatsToHost(pool, c.cache);

    std::vector<float> expected = qkv;
    const RopeKvWriteArgs host =
        args(reinterpret_cast<std::byte*>(expected.data()), DType::kF32, norms.data(),
             cos_sin.data(), rope_positions.data(), positions.data(), host_rows, {});
    RopeReference(host.rope);
    const float q_unit = c.activations == DType::kF32 ? 2e-6f : 4.1e-3f;
    const float unit = c.cache == DType::kF32    ? 2e-6f
                       : c.cache == DType::kF16  ? 6e-4f
                       : c.cache == DType::kBF16 ? 4.1e-3f
                                                 : 0.07f;
    std::vector<bool> touched(written.size(), false);
    for (int32_t t = 0; t < kTokens; ++t) {
      for (int32_t i = 0; i < kHeads * d; ++i) {
        const float e = expected[static_cast<size_t>(t * width + i)];
        ASSERT_NEAR(turned[static_cast<size_t>(t * width + i)], e, q_unit * (std::fabs(e) + 0.1f));
      }
      const int32_t row = t == 0  ? 0
                          : t < 6 ? 1
                                  : t - 4,
                    position = positions[static_cast<size_t>(t)];
      const int32_t page = table[static_cast<size_t>(row * 2 + position / kPage)];
      if (page < 0) continue;
      for (int32_t h = 0; h < 2 * kKvHeads; ++h) {
        for (int32_t i = 0; i < d; ++i) {
          const size_t index = static_cast<size_t>(
              ((int64_t{page} * 2 * kKvHeads + h) * kPage + position % kPage) * d + i);
          const float e = expected[static_cast<size_t>(t * width + (kHeads + h) * d + i)];
          ASSERT_NEAR(written[index], e, unit * (std::fabs(e) + 0.1f)) << t << " " << h << " " << i;
          touched[index] = true;
        }
      }
    }
    for (size_t i = 0; i < written.size(); ++i) ASSERT_TRUE(touched[i] || std::isnan(written[i]));
  }
}

// More rows than a block has threads, some without tokens, whose tables lie in another order.
TEST_F(KvWriteGpuTest, KvWriteFindsThePageOfEveryToken) {
  constexpr int32_t kRows = 300, kPage = 16, kDim = 16, kStride = 2;
  std::vector<int32_t> q_begin = {0}, positions, slots, table(kRows * kStride), row_of_token;
  for (int32_t r = 0; r < kRows; ++r) {
    slots.push_back((r * 7 + 3) % kRows);
    for (int32_t i = 0; i < r % 4; ++i) {
      positions.push_back(13 + i + r % 3);
      row_of_token.push_back(r);
    }
    q_begin.push_back(static_cast<int32_t>(positions.size()));
  }
  for (int32_t i = 0; i < kRows * kStride; ++i) table[static_cast<size_t>(i)] = i;
  const auto tokens = static_cast<int64_t>(positions.size());
  std::vector<float> kv(static_cast<size_t>(2 * tokens * kDim));
  for (size_t i = 0; i < kv.size(); ++i) kv[i] = static_cast<float>(i / kDim + 1);

  const int64_t page_bytes = KvLayerPageBytes(DType::kF32, kPage, 1, kDim);
  const auto pool = PoisonedPages(kRows * kStride, page_bytes), data = ToDevice(kv, DType::kF32);
  const auto begin = ToDevice(q_begin), at = ToDevice(positions), slot = ToDevice(slots),
             pages = ToDevice(table);
  const Shape shape{tokens, 1, kDim};
  KvWrite(stream_, {.k = {data.data(), DType::kF32, shape},
                    .v = {data.data() + kDim * sizeof(float), DType::kF32, shape},
                    .k_row_stride = 2 * kDim,
                    .v_row_stride = 2 * kDim,
                    .positions = at.data(),
                    .rows = {.num_rows = kRows,
                             .q_begin = begin.data(),
                             .page_table = pages.data(),
                             .page_table_stride = kStride,
                             .table_row = slot.data()},
                    .cache = {pool.data(), page_bytes, DType::kF32, kPage, 1, kDim}});
  const std::vector<float> written = FloatsToHost(pool, DType::kF32);
  std::vector<float> expected(written.size(), 0.0f);
  for (size_t t = 0; t < positions.size(); ++t) {
    const int32_t owner = slots[static_cast<size_t>(row_of_token[t])], position = positions[t];
    const int64_t page = owner * kStride + position / kPage;
    for (int64_t side = 0; side < 2; ++side) {
      for (int64_t i = 0; i < kDim; ++i) {
        expected[static_cast<size_t>(((page * 2 + side) * kPage + position % kPage) * kDim + i)] =
            static_cast<float>(2 * t + static_cast<size_t>(side) + 1);
      }
    }
  }
  for (size_t i = 0; i < written.size(); ++i) {
    ASSERT_EQ(std::isnan(written[i]) ? 0.0f : written[i], expected[i]) << i;
  }
}

}  // namespace
}  // namespace hayate::ops
