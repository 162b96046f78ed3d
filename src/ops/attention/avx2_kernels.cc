// AVX2 with FMA and F16C: the block is widened to fp32 scratch, then 2 queries × 32 keys of scores
// and 2 queries × 32 features of values at a time, 8 sums in registers.

#include "ops/attention/kernels.h"
#include "ops/attention/kv_layout.h"
#include "ops/detail/exp_x86.h"
#include "tensor/float16.h"

#if defined(__x86_64__)

#define HAYATE_AVX2_INLINE HAYATE_AVX2 __attribute__((always_inline)) inline

namespace hayate::ops::attention {
namespace {

HAYATE_AVX2_INLINE __m256 Load8(DType dtype, const std::byte* data, int64_t index) {
  if (dtype == DType::kF32) return _mm256_loadu_ps(reinterpret_cast<const float*>(data) + index);
  if (dtype == DType::kI8) {
    const __m128i bytes = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(data + index));
    return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(bytes));
  }
  const __m128i words = _mm_loadu_si128(reinterpret_cast<const __m128i*>(data + 2 * index));
  if (dtype == DType::kF16) return _mm256_cvtph_ps(words);
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(words), 16));
}

// The block in fp32 into the tile's scratch; blocks that were gathered are there already.
HAYATE_AVX2 void Widen(const QueryTile& tile, const KeyBlock& block) {
  if (block.k[0] == reinterpret_cast<const std::byte*>(tile.k_scratch)) return;
  for (int32_t feature = 0; feature < tile.d; ++feature) {
    for (int j = 0; j < kKeysPerBlock; j += 8) {
      const int64_t index = feature * block.k_stride + j % kKeysPerHalf;
      _mm256_storeu_ps(tile.k_scratch + feature * kKeysPerBlock + j,
                       Load8(block.dtype, block.k[j / kKeysPerHalf], index));
    }
  }
  for (int32_t j = block.begin; j < block.end; ++j) {
    const std::byte* values = block.v[j / kKeysPerHalf];
    const int64_t row = int64_t{j % kKeysPerHalf} * tile.d;
    float* out = tile.v_scratch + j * tile.d;
    int32_t i = 0;
    for (; i + 8 <= tile.d; i += 8) _mm256_storeu_ps(out + i, Load8(block.dtype, values, row + i));
    for (; i < tile.d; ++i) out[i] = LoadElement(block.dtype, values, row + i);
  }
}

template <int kQueries>
HAYATE_AVX2 void Scores(const QueryTile& tile, const KeyBlock& block, int32_t query) {
  const float* q = tile.q + int64_t{query} * tile.d;
  __m256 s[kQueries][4];
#pragma GCC unroll 2
  for (int i = 0; i < kQueries; ++i) {
#pragma GCC unroll 4
    for (int n = 0; n < 4; ++n) s[i][n] = _mm256_setzero_ps();
  }
  for (int32_t feature = 0; feature < tile.d; ++feature) {
    const float* keys = tile.k_scratch + feature * kKeysPerBlock;
#pragma GCC unroll 2
    for (int i = 0; i < kQueries; ++i) {
      const __m256 value = _mm256_set1_ps(q[i * tile.d + feature]);
#pragma GCC unroll 4
      for (int n = 0; n < 4; ++n) {
        s[i][n] = _mm256_fmadd_ps(value, _mm256_loadu_ps(keys + 8 * n), s[i][n]);
      }
    }
  }
#pragma GCC unroll 2
  for (int i = 0; i < kQueries; ++i) {
#pragma GCC unroll 4
    for (int n = 0; n < 4; ++n) {
      const float* scales = block.k_scales[n / 2];
      if (scales != nullptr) s[i][n] = _mm256_mul_ps(s[i][n], _mm256_loadu_ps(scales + n % 2 * 8));
      _mm256_storeu_ps(tile.scores + (query + i) * kKeysPerBlock + 8 * n, s[i][n]);
    }
  }
}

// c · tanh(x / c) with tanh(y) = 1 − 2 / (e^2y + 1).
HAYATE_AVX2_INLINE __m256 SoftCap(__m256 x, float cap) {
  const __m256 one = _mm256_set1_ps(1.0f);
  const __m256 e = Exp(_mm256_mul_ps(x, _mm256_set1_ps(2.0f / cap)));
  const __m256 tanh =
      _mm256_sub_ps(one, _mm256_div_ps(_mm256_set1_ps(2.0f), _mm256_add_ps(e, one)));
  return _mm256_mul_ps(_mm256_set1_ps(cap), tanh);
}

// Lanes of 8 keys that are visible, as all ones.
HAYATE_AVX2_INLINE __m256 LaneMask(uint32_t visible) {
  const __m256i bit = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128);
  const __m256i set = _mm256_and_si256(_mm256_set1_epi32(static_cast<int>(visible & 0xFF)), bit);
  return _mm256_castsi256_ps(_mm256_cmpeq_epi32(set, bit));
}

HAYATE_AVX2_INLINE float ReduceMax(__m256 x) {
  __m128 m = _mm_max_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
  m = _mm_max_ps(m, _mm_movehl_ps(m, m));
  return _mm_cvtss_f32(_mm_max_ss(m, _mm_shuffle_ps(m, m, 1)));
}
HAYATE_AVX2_INLINE float ReduceAdd(__m256 x) {
  __m128 m = _mm_add_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
  m = _mm_add_ps(m, _mm_movehl_ps(m, m));
  return _mm_cvtss_f32(_mm_add_ss(m, _mm_shuffle_ps(m, m, 1)));
}

// Scores to weights; leaves the correction of what came before in tile.correction.
HAYATE_AVX2 void Softmax(const QueryTile& tile, const KeyBlock& block, int32_t query) {
  float* scores = tile.scores + query * kKeysPerBlock;
  const uint32_t visible = VisibleKeys(tile, query, block);
  const __m256 lowest = _mm256_set1_ps(-__builtin_inff());
  __m256 s[4];
  __m256 highest = lowest;
#pragma GCC unroll 4
  for (int n = 0; n < 4; ++n) {
    s[n] = _mm256_loadu_ps(scores + 8 * n);
    if (tile.soft_cap > 0.0f) s[n] = SoftCap(s[n], tile.soft_cap);
    highest = _mm256_max_ps(highest, _mm256_blendv_ps(lowest, s[n], LaneMask(visible >> (8 * n))));
  }
  const float max = tile.max[query];
  const float block_max = ReduceMax(highest);
  const float new_max = block_max > max ? block_max : max;
  // Equal maxima, both −∞ among them, correct by exactly 1.
  const float correction =
      max == new_max ? 1.0f : _mm256_cvtss_f32(Exp(_mm256_set1_ps(max - new_max)));
  __m256 sum = _mm256_setzero_ps();
#pragma GCC unroll 4
  for (int n = 0; n < 4; ++n) {
    const __m256 mask = LaneMask(visible >> (8 * n));
    __m256 p = _mm256_and_ps(mask, Exp(_mm256_sub_ps(s[n], _mm256_set1_ps(new_max))));
    sum = _mm256_add_ps(sum, p);
    const float* scales = block.v_scales[n / 2];
    if (scales != nullptr) {
      p = _mm256_and_ps(mask, _mm256_mul_ps(p, _mm256_loadu_ps(scales + n % 2 * 8)));
    }
    _mm256_storeu_ps(scores + 8 * n, p);
  }
  tile.max[query] = new_max;
  tile.correction[query] = correction;
  tile.sum[query] = tile.sum[query] * correction + ReduceAdd(sum);
}

// kVectors · 8 features of one or two queries.
template <int kQueries, int kVectors>
HAYATE_AVX2 void AddValues(const QueryTile& tile, const KeyBlock& block, int32_t query,
                           int32_t feature) {
  float* o = tile.o + int64_t{query} * tile.d + feature;
  const float* p = tile.scores + query * kKeysPerBlock;
  __m256 acc[kQueries][kVectors];
#pragma GCC unroll 2
  for (int i = 0; i < kQueries; ++i) {
    const __m256 correction = _mm256_set1_ps(tile.correction[query + i]);
#pragma GCC unroll 4
    for (int n = 0; n < kVectors; ++n) {
      acc[i][n] = _mm256_mul_ps(correction, _mm256_loadu_ps(o + i * tile.d + 8 * n));
    }
  }
  for (int32_t j = block.begin; j < block.end; ++j) {
    const float* values = tile.v_scratch + j * tile.d + feature;
#pragma GCC unroll 2
    for (int i = 0; i < kQueries; ++i) {
      const __m256 weight = _mm256_set1_ps(p[i * kKeysPerBlock + j]);
#pragma GCC unroll 4
      for (int n = 0; n < kVectors; ++n) {
        acc[i][n] = _mm256_fmadd_ps(weight, _mm256_loadu_ps(values + 8 * n), acc[i][n]);
      }
    }
  }
#pragma GCC unroll 2
  for (int i = 0; i < kQueries; ++i) {
#pragma GCC unroll 4
    for (int n = 0; n < kVectors; ++n) _mm256_storeu_ps(o + i * tile.d + 8 * n, acc[i][n]);
  }
}

template <int kQueries>
HAYATE_AVX2 void AddValuesOf(const QueryTile& tile, const KeyBlock& block, int32_t query) {
  int32_t feature = 0;
  for (; feature + 32 <= tile.d; feature += 32) {
    AddValues<kQueries, 4>(tile, block, query, feature);
  }
  for (; feature + 8 <= tile.d; feature += 8) AddValues<kQueries, 1>(tile, block, query, feature);
  for (; feature < tile.d; ++feature) {
    for (int32_t i = query; i < query + kQueries; ++i) {
      float& o = tile.o[i * tile.d + feature];
      o *= tile.correction[i];
      for (int32_t j = block.begin; j < block.end; ++j) {
        o += tile.scores[i * kKeysPerBlock + j] * tile.v_scratch[j * tile.d + feature];
      }
    }
  }
}

void AddBlock(const QueryTile& tile, const KeyBlock& block) {
  Widen(tile, block);
  int32_t query = 0;
  for (; query + 2 <= tile.count; query += 2) Scores<2>(tile, block, query);
  if (query < tile.count) Scores<1>(tile, block, query);
  for (query = 0; query < tile.count; ++query) Softmax(tile, block, query);
  for (query = 0; query + 2 <= tile.count; query += 2) AddValuesOf<2>(tile, block, query);
  if (query < tile.count) AddValuesOf<1>(tile, block, query);
}

HAYATE_AVX2 float Store(DType dtype, const float* x, int32_t d, std::byte* out, int64_t stride) {
  if (dtype != DType::kF16) return PlainKernels().store(dtype, x, d, out, stride);
  uint16_t* words = reinterpret_cast<uint16_t*>(out);
  int32_t i = 0;
  for (; i + 8 <= d; i += 8) {
    alignas(16) uint16_t buffer[8];
    _mm_store_si128(reinterpret_cast<__m128i*>(buffer),
                    _mm256_cvtps_ph(_mm256_loadu_ps(x + i), _MM_FROUND_TO_NEAREST_INT));
    for (int j = 0; j < 8; ++j) words[(i + j) * stride] = buffer[j];
  }
  for (; i < d; ++i) words[i * stride] = FloatToF16(x[i]);
  return 1.0f;
}

}  // namespace

const Kernels& Avx2Kernels() {
  static constexpr Kernels kKernels = {.name = "avx2", .add_block = AddBlock, .store = Store};
  return kKernels;
}

}  // namespace hayate::ops::attention

#endif  // __x86_64__
