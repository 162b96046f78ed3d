// AVX-512. One vector holds one feature of 16 keys (scores) or 16 features of one key (values).
//
//   scores   8 queries × 32 keys in 16 registers: per feature 2 loads of keys, 8 broadcasts, 16
//   FMAs values   4 queries × 64 features in 16 registers: per key 4 loads, 4 broadcasts, 16 FMAs
//   traffic  a tile of more than 4 queries widens the block's keys and values to fp32 once, into
//            scratch that stays in the first cache; fewer (decode) widen in registers
//   bound    decode: memory, 4·D bytes per key and kv head at 16 bits; prefill: the FMA pipes,
//            4·D flop per key and query

#include "ops/attention/kernels.h"
#include "ops/detail/exp_x86.h"
#include "tensor/float16.h"

#if defined(__x86_64__)

#include <bit>

#define HAYATE_AVX512_INLINE HAYATE_AVX512 __attribute__((always_inline)) inline

namespace hayate::ops::attention {
namespace {

// Lanes `lanes` of 16 elements from `index` on, as fp32; other lanes are 0 and their memory is not
// read.
template <DType kDType>
HAYATE_AVX512_INLINE __m512 Load(const std::byte* data, int64_t index, __mmask16 lanes) {
  if constexpr (kDType == DType::kF32) {
    return _mm512_maskz_loadu_ps(lanes, reinterpret_cast<const float*>(data) + index);
  } else if constexpr (kDType == DType::kI8) {
    const __m128i bytes = _mm_maskz_loadu_epi8(lanes, data + index);
    return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(bytes));
  } else {
    const __m256i words = _mm256_maskz_loadu_epi16(lanes, data + 2 * index);
    if constexpr (kDType == DType::kF16) return _mm512_cvtph_ps(words);
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(words), 16));
  }
}
template <DType kDType>
HAYATE_AVX512_INLINE __m512 Load(const std::byte* data, int64_t index) {
  if constexpr (kDType == DType::kF32) {
    return _mm512_loadu_ps(reinterpret_cast<const float*>(data) + index);
  } else if constexpr (kDType == DType::kI8) {
    const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(data + index));
    return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(bytes));
  } else {
    const __m256i words = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(data + 2 * index));
    if constexpr (kDType == DType::kF16) return _mm512_cvtph_ps(words);
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(words), 16));
  }
}

// Into the second cache: misses that wait in the first one would hold up the loads.
HAYATE_AVX512_INLINE void Prefetch(const void* address) {
  _mm_prefetch(static_cast<const char*>(address), _MM_HINT_T1);
}

// Asks for feature `feature`'s share of the next block: its line of keys, and as many bytes of
// values.
template <DType kDType>
HAYATE_AVX512_INLINE void FetchNext(const KeyBlock& next, int32_t feature, int32_t d) {
  constexpr int64_t kBytes = kDType == DType::kF32 ? 4 : kDType == DType::kI8 ? 1 : 2;
  Prefetch(next.k[0] + feature * next.k_stride * kBytes);
  const int32_t half = feature >= d / 2 ? 1 : 0;
  Prefetch(next.v[half] + int64_t{feature - half * (d / 2)} * kKeysPerBlock * kBytes);
  if (kDType == DType::kI8 && feature < 2) {
    Prefetch(next.k_scales[feature]);
    Prefetch(next.v_scales[feature]);
  }
}

template <DType kDType, int kQueries>
HAYATE_AVX512 void Scores(const QueryTile& tile, const KeyBlock& block, int32_t query) {
  const float* q = tile.q + int64_t{query} * tile.d;
  __m512 s[kQueries][2];
#pragma GCC unroll 8
  for (int i = 0; i < kQueries; ++i) s[i][0] = s[i][1] = _mm512_setzero_ps();
  const bool fetch = kQueries <= 4 && block.next != nullptr;
  const KeyBlock& next = fetch ? *block.next : block;
  for (int32_t feature = 0; feature < tile.d; ++feature) {
    if constexpr (kQueries <= 4) FetchNext<kDType>(next, feature, tile.d);
    const __m512 k0 = Load<kDType>(block.k[0], feature * block.k_stride);
    const __m512 k1 = Load<kDType>(block.k[1], feature * block.k_stride);
#pragma GCC unroll 8
    for (int i = 0; i < kQueries; ++i) {
      const __m512 value = _mm512_set1_ps(q[i * tile.d + feature]);
      s[i][0] = _mm512_fmadd_ps(value, k0, s[i][0]);
      s[i][1] = _mm512_fmadd_ps(value, k1, s[i][1]);
    }
  }
  float* out = tile.scores + query * kKeysPerBlock;
#pragma GCC unroll 8
  for (int i = 0; i < kQueries; ++i) {
#pragma GCC unroll 8
    for (int half = 0; half < 2; ++half) {
      if (block.k_scales[half] != nullptr) {
        s[i][half] = _mm512_mul_ps(s[i][half], _mm512_loadu_ps(block.k_scales[half]));
      }
      _mm512_storeu_ps(out + i * kKeysPerBlock + half * kKeysPerHalf, s[i][half]);
    }
  }
}

// c · tanh(x / c) with tanh(y) = 1 − 2 / (e^2y + 1).
HAYATE_AVX512_INLINE __m512 SoftCap(__m512 x, float cap) {
  const __m512 one = _mm512_set1_ps(1.0f);
  const __m512 e = Exp(_mm512_mul_ps(x, _mm512_set1_ps(2.0f / cap)));
  const __m512 tanh =
      _mm512_sub_ps(one, _mm512_div_ps(_mm512_set1_ps(2.0f), _mm512_add_ps(e, one)));
  return _mm512_mul_ps(_mm512_set1_ps(cap), tanh);
}

HAYATE_AVX512 void Maxima(const QueryTile& tile, const KeyBlock& block) {
  const __m512 lowest = _mm512_set1_ps(-__builtin_inff());
  for (int32_t query = 0; query < tile.count; ++query) {
    float* scores = tile.scores + query * kKeysPerBlock;
    const uint32_t visible = VisibleKeys(tile, query, block);
    __m512 low = _mm512_loadu_ps(scores), high = _mm512_loadu_ps(scores + kKeysPerHalf);
    if (tile.soft_cap > 0.0f) {
      low = SoftCap(low, tile.soft_cap);
      high = SoftCap(high, tile.soft_cap);
      _mm512_storeu_ps(scores, low);
      _mm512_storeu_ps(scores + kKeysPerHalf, high);
    }
    low = _mm512_mask_mov_ps(lowest, static_cast<__mmask16>(visible), low);
    high = _mm512_mask_mov_ps(lowest, static_cast<__mmask16>(visible >> 16), high);
    const float max = _mm512_reduce_max_ps(_mm512_max_ps(low, high));
    tile.new_max[query] = max > tile.max[query] ? max : tile.max[query];
  }
}

HAYATE_AVX512 void Weights(const QueryTile& tile, const KeyBlock& block) {
  for (int32_t first = 0; first < tile.count; first += 16) {
    const __m512 max = _mm512_loadu_ps(tile.max + first);
    const __m512 new_max = _mm512_loadu_ps(tile.new_max + first);
    // Equal maxima, both −∞ among them, correct by exactly 1.
    const __mmask16 same = _mm512_cmp_ps_mask(max, new_max, _CMP_EQ_OQ);
    const __m512 correction =
        _mm512_mask_mov_ps(Exp(_mm512_sub_ps(max, new_max)), same, _mm512_set1_ps(1.0f));
    _mm512_storeu_ps(tile.correction + first, correction);
    _mm512_storeu_ps(tile.max + first, new_max);
    _mm512_storeu_ps(tile.sum + first,
                     _mm512_mul_ps(correction, _mm512_loadu_ps(tile.sum + first)));
  }
  for (int32_t query = 0; query < tile.count; ++query) {
    float* scores = tile.scores + query * kKeysPerBlock;
    const uint32_t visible = VisibleKeys(tile, query, block);
    const __m512 max = _mm512_set1_ps(tile.max[query]);
    __m512 sum = _mm512_setzero_ps();
#pragma GCC unroll 8
    for (int half = 0; half < 2; ++half) {
      const __mmask16 lanes = static_cast<__mmask16>(visible >> (half * kKeysPerHalf));
      float* s = scores + half * kKeysPerHalf;
      __m512 p = _mm512_maskz_mov_ps(lanes, Exp(_mm512_sub_ps(_mm512_loadu_ps(s), max)));
      sum = _mm512_add_ps(sum, p);
      if (block.v_scales[half] != nullptr) {
        p = _mm512_maskz_mul_ps(lanes, p, _mm512_loadu_ps(block.v_scales[half]));
      }
      _mm512_storeu_ps(s, p);
    }
    tile.sum[query] += _mm512_reduce_add_ps(sum);
  }
}

// kQueries queries × kVectors · 16 features from `feature` on; `lanes` of the last vector exist.
template <DType kDType, int kQueries, int kVectors>
HAYATE_AVX512 void AddValues(const QueryTile& tile, const KeyBlock& block, int32_t query,
                             int32_t feature, __mmask16 lanes) {
  float* o = tile.o + int64_t{query} * tile.d + feature;
  const float* p = tile.scores + query * kKeysPerBlock;
  __m512 acc[kQueries][kVectors];
#pragma GCC unroll 8
  for (int i = 0; i < kQueries; ++i) {
    const __m512 correction = _mm512_set1_ps(tile.correction[query + i]);
#pragma GCC unroll 8
    for (int n = 0; n < kVectors; ++n) {
      const __mmask16 mask = n + 1 == kVectors ? lanes : 0xFFFF;
      acc[i][n] = _mm512_mul_ps(correction, _mm512_maskz_loadu_ps(mask, o + i * tile.d + 16 * n));
    }
  }
  for (int32_t j = block.begin; j < block.end; ++j) {
    const std::byte* values = block.v[j / kKeysPerHalf];
    const int64_t index = int64_t{j % kKeysPerHalf} * tile.d + feature;
    __m512 v[kVectors];
#pragma GCC unroll 8
    for (int n = 0; n + 1 < kVectors; ++n) v[n] = Load<kDType>(values, index + 16 * n);
    v[kVectors - 1] = Load<kDType>(values, index + 16 * (kVectors - 1), lanes);
#pragma GCC unroll 4
    for (int i = 0; i < kQueries; ++i) {
      const __m512 weight = _mm512_set1_ps(p[i * kKeysPerBlock + j]);
#pragma GCC unroll 8
      for (int n = 0; n < kVectors; ++n) acc[i][n] = _mm512_fmadd_ps(weight, v[n], acc[i][n]);
    }
  }
#pragma GCC unroll 8
  for (int i = 0; i < kQueries; ++i) {
#pragma GCC unroll 8
    for (int n = 0; n < kVectors; ++n) {
      const __mmask16 mask = n + 1 == kVectors ? lanes : 0xFFFF;
      _mm512_mask_storeu_ps(o + i * tile.d + 16 * n, mask, acc[i][n]);
    }
  }
}

template <DType kDType, int kQueries>
void AddValuesOf(const QueryTile& tile, const KeyBlock& block, int32_t query) {
  int32_t feature = 0;
  for (; feature + 64 <= tile.d; feature += 64) {
    AddValues<kDType, kQueries, 4>(tile, block, query, feature, 0xFFFF);
  }
  for (; feature < tile.d; feature += 16) {
    const int32_t left = tile.d - feature < 16 ? tile.d - feature : 16;
    AddValues<kDType, kQueries, 1>(tile, block, query, feature,
                                   static_cast<__mmask16>((1u << left) - 1));
  }
}

template <DType kDType>
void AddTyped(const QueryTile& tile, const KeyBlock& block) {
  int32_t query = 0;
  for (; query + 8 <= tile.count; query += 8) Scores<kDType, 8>(tile, block, query);
  for (; query + 4 <= tile.count; query += 4) Scores<kDType, 4>(tile, block, query);
  switch (tile.count - query) {
    case 3:
      Scores<kDType, 3>(tile, block, query);
      break;
    case 2:
      Scores<kDType, 2>(tile, block, query);
      break;
    case 1:
      Scores<kDType, 1>(tile, block, query);
      break;
    default:
      break;
  }
  Maxima(tile, block);
  Weights(tile, block);
  for (query = 0; query + 4 <= tile.count; query += 4) AddValuesOf<kDType, 4>(tile, block, query);
  switch (tile.count - query) {
    case 3:
      return AddValuesOf<kDType, 3>(tile, block, query);
    case 2:
      return AddValuesOf<kDType, 2>(tile, block, query);
    case 1:
      return AddValuesOf<kDType, 1>(tile, block, query);
    default:
      return;
  }
}

// The block in fp32, in the tile's scratch. Widening is exact, so results are the same bits.
template <DType kDType>
HAYATE_AVX512 KeyBlock Widen(const QueryTile& tile, const KeyBlock& block) {
  KeyBlock wide = block;
  wide.dtype = DType::kF32;
  wide.k_stride = kKeysPerBlock;
#pragma GCC unroll 8
  for (int half = 0; half < 2; ++half) {
    float* keys = tile.k_scratch + half * kKeysPerHalf;
    for (int32_t feature = 0; feature < tile.d; ++feature) {
      _mm512_storeu_ps(keys + feature * kKeysPerBlock,
                       Load<kDType>(block.k[half], feature * block.k_stride));
    }
    float* values = tile.v_scratch + half * kKeysPerHalf * tile.d;
    const int32_t begin = half == 0 ? block.begin : (block.begin > 16 ? block.begin - 16 : 0);
    const int32_t end = half == 0 ? (block.end < 16 ? block.end : 16) : block.end - 16;
    for (int32_t i = begin * tile.d; i < end * tile.d; i += 16) {
      const int32_t left = end * tile.d - i;
      const __mmask16 lanes = FirstLanes(left < 16 ? left : 16);
      _mm512_mask_storeu_ps(values + i, lanes, Load<kDType>(block.v[half], i, lanes));
    }
    wide.k[half] = reinterpret_cast<const std::byte*>(keys);
    wide.v[half] = reinterpret_cast<const std::byte*>(values);
  }
  return wide;
}

template <DType kDType>
void AddAs(const QueryTile& tile, const KeyBlock& block) {
  if (tile.count <= 4) return AddTyped<kDType>(tile, block);
  AddTyped<DType::kF32>(tile, Widen<kDType>(tile, block));
}

void AddBlock(const QueryTile& tile, const KeyBlock& block) {
  switch (block.dtype) {
    case DType::kF32:
      return AddTyped<DType::kF32>(tile, block);
    case DType::kF16:
      return AddAs<DType::kF16>(tile, block);
    case DType::kBF16:
      return AddAs<DType::kBF16>(tile, block);
    case DType::kI8:
      return AddAs<DType::kI8>(tile, block);
    default:
      CHECK(false) << "not a cache type: " << Info(block.dtype).name;
  }
}

HAYATE_AVX512 float Store(DType dtype, const float* x, int32_t d, std::byte* out, int64_t stride) {
  if (dtype != DType::kF16) return PlainKernels().store(dtype, x, d, out, stride);
  uint16_t* words = reinterpret_cast<uint16_t*>(out);
  for (int32_t i = 0; i < d; i += 16) {
    const int32_t count = d - i < 16 ? d - i : 16;
    const __m256i halves = _mm512_cvtps_ph(_mm512_maskz_loadu_ps(FirstLanes(count), x + i),
                                           _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    if (stride == 1) {
      _mm256_mask_storeu_epi16(words + i, FirstLanes(count), halves);
      continue;
    }
    alignas(32) uint16_t buffer[16];
    _mm256_store_si256(reinterpret_cast<__m256i*>(buffer), halves);
    for (int32_t j = 0; j < count; ++j) words[(i + j) * stride] = buffer[j];
  }
  return 1.0f;
}

}  // namespace

const Kernels& Avx512Kernels() {
  static constexpr Kernels kKernels = {.name = "avx512", .add_block = AddBlock, .store = Store};
  return kKernels;
}

}  // namespace hayate::ops::attention

#endif  // __x86_64__
