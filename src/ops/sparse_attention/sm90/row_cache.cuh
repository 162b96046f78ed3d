#pragma once
// Latent rows (latent_rows.h) as a kernel sees them: where a row lies, one feature of it as fp32,
// and a row's quantisation by a block of threads.

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>

#include <cstdint>

#include "ops/detail/sm90/eight.cuh"
#include "ops/detail/sm90/stored_element.cuh"
#include "ops/sparse_attention/latent_rows.h"

namespace hayate::ops::sm90 {

// One layer of one group's pool, with the sizes that the host computes.
struct RowCache {
  std::byte* base = nullptr;
  int64_t page_stride = 0;
  RowFormat format = RowFormat::kF32;
  int32_t page_rows = 1, width = 0, rotary = 0;
  int32_t data_bytes = 0, scale_bytes = 0;  // of a row

  RowCache() = default;
  explicit RowCache(const LatentLayerView& view)
      : base(view.base),
        page_stride(view.page_stride),
        format(view.format),
        page_rows(view.page_rows),
        width(view.width),
        rotary(view.rotary) {
    if (view.page_rows == 0) return;  // a view of nothing
    data_bytes = static_cast<int32_t>(RowDataBytes(view.format, view.width, view.rotary));
    scale_bytes = static_cast<int32_t>(RowScaleBytes(view.format, view.width, view.rotary));
  }
};

struct RowPlace {
  uint8_t* data = nullptr;
  uint8_t* scales = nullptr;
};

__device__ __forceinline__ RowPlace PlaceOf(const RowCache& cache, int32_t page, int32_t row) {
  auto* base = reinterpret_cast<uint8_t*>(cache.base + page * cache.page_stride);
  return {base + int64_t{row} * cache.data_bytes,
          base + int64_t{cache.page_rows} * cache.data_bytes + int64_t{row} * cache.scale_bytes};
}

__device__ __forceinline__ float FloatOfE8M0(uint8_t e) {
  return e == 0 ? 0x1p-127f : __uint_as_float(uint32_t{e} << 23);
}
__device__ __forceinline__ float FloatOfE4M3(uint8_t code) {
  return __half2float(__half(__nv_cvt_fp8_to_halfraw(code, __NV_E4M3)));
}

// Feature i of a row.
__device__ __forceinline__ float RowElement(const RowCache& cache, const RowPlace& place, int i) {
  const uint8_t* data = place.data;
  const int quantised = cache.width - cache.rotary;
  switch (cache.format) {
    case RowFormat::kF32:
      return reinterpret_cast<const float*>(data)[i];
    case RowFormat::kBF16:
      return ToFloat(reinterpret_cast<const __nv_bfloat16*>(data)[i]);
    case RowFormat::kFp8:
      if (i < quantised) return FloatOfE4M3(data[i]) * FloatOfE8M0(place.scales[i / 64]);
      return ToFloat(reinterpret_cast<const __nv_bfloat16*>(data + quantised)[i - quantised]);
    case RowFormat::kFp8All:
      return FloatOfE4M3(data[i]) * FloatOfE8M0(place.scales[i / 32]);
    case RowFormat::kFp4All:
      return static_cast<float>(TwiceE2M1(data[i / 2] >> (i % 2 * 4) & 15)) * 0.5f *
             FloatOfE4M3(place.scales[i / 16]);
    case RowFormat::kFp4Key:
      return static_cast<float>(TwiceE2M1(data[i / 2] >> (i % 2 * 4) & 15)) * 0.5f *
             FloatOfE8M0(place.scales[i / 32]);
    case RowFormat::kFp8Row: {
      const auto* scales = reinterpret_cast<const float*>(data + quantised);
      if (i < quantised) return FloatOfE4M3(data[i]) * scales[i / 128];
      const auto* tail = reinterpret_cast<const __nv_bfloat16*>(scales + quantised / 128);
      return ToFloat(tail[i - quantised]);
    }
    case RowFormat::kFp8Key:
      return FloatOfE4M3(data[i]) * reinterpret_cast<const float*>(place.scales)[i / 128];
  }
  return 0.0f;
}

// The block quantisers of quantize.h.
__device__ __forceinline__ float RoundedToBf16(float x) {
  return __bfloat162float(__float2bfloat16_rn(x));
}
// The E8M0 byte of 2^⌈log2 v⌉.
__device__ __forceinline__ uint8_t CeilPowerOfTwo(float v) {
  const uint32_t bits = __float_as_uint(v);
  return static_cast<uint8_t>((bits >> 23) + ((bits & 0x7FFFFFu) != 0 ? 1 : 0));
}
__device__ __forceinline__ uint8_t CodeOfE4M3(float x) {
  return __nv_cvt_float_to_fp8(x, __NV_SATFINITE, __NV_E4M3);
}
// To nearest, ties to the even code, saturating at ±6.
__device__ __forceinline__ uint8_t CodeOfE2M1(float x) {
  const float a = fabsf(x);
  const int code = a <= 0.25f   ? 0
                   : a < 0.75f  ? 1
                   : a <= 1.25f ? 2
                   : a < 1.75f  ? 3
                   : a <= 2.5f  ? 4
                   : a < 3.5f   ? 5
                   : a <= 5.0f  ? 6
                                : 7;
  return static_cast<uint8_t>(code | (signbit(x) ? 8 : 0));
}

// The largest magnitude of x[0, n) rounded to bf16, of a warp.
__device__ __forceinline__ float WarpMagnitude(const float* x, int n) {
  float most = 0.0f;
  for (int i = threadIdx.x % 32; i < n; i += 32) most = fmaxf(most, fabsf(RoundedToBf16(x[i])));
  return WarpMax(most);
}

// Codes of a block x [n] under one scale, by a warp.
__device__ __forceinline__ void StoreE4M3(const float* x, int n, float scale, uint8_t* codes) {
  for (int i = threadIdx.x % 32; i < n; i += 32) codes[i] = CodeOfE4M3(RoundedToBf16(x[i]) / scale);
}
__device__ __forceinline__ void StoreE2M1(const float* x, int n, float scale, uint8_t* codes) {
  for (int i = threadIdx.x % 32; i < n / 2; i += 32) {
    const int low = CodeOfE2M1(RoundedToBf16(x[2 * i]) / scale);
    const int high = CodeOfE2M1(RoundedToBf16(x[2 * i + 1]) / scale);
    codes[i] = static_cast<uint8_t>(low | high << 4);
  }
}

// Stores x [width], shared memory of the block, whose threads are whole warps and all come.
__device__ inline void StoreRow(const RowCache& cache, const RowPlace& place, const float* x) {
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, warps = blockDim.x / 32;
  const int threads = blockDim.x, quantised = cache.width - cache.rotary;
  const auto store_tail = [&](uint8_t* to) {
    for (int i = threadIdx.x; i < cache.rotary; i += threads) {
      reinterpret_cast<__nv_bfloat16*>(to)[i] = __float2bfloat16_rn(x[quantised + i]);
    }
  };
  // E4M3 under scales of `size` features, written as bytes or as floats.
  const auto store_blocks = [&](int size, int features, uint8_t* bytes, float* floats) {
    for (int b = warp; b < features / size; b += warps) {
      const float* block = x + b * size;
      const uint8_t e = CeilPowerOfTwo(fmaxf(WarpMagnitude(block, size), 1e-4f) / 448.0f);
      const float scale = FloatOfE8M0(e);
      if (lane == 0 && bytes != nullptr) bytes[b] = e;
      if (lane == 0 && floats != nullptr) floats[b] = scale;
      StoreE4M3(block, size, scale, place.data + b * size);
    }
  };
  switch (cache.format) {
    case RowFormat::kF32:
      for (int i = threadIdx.x; i < cache.width; i += threads) {
        reinterpret_cast<float*>(place.data)[i] = x[i];
      }
      return;
    case RowFormat::kBF16:
      for (int i = threadIdx.x; i < cache.width; i += threads) {
        reinterpret_cast<__nv_bfloat16*>(place.data)[i] = __float2bfloat16_rn(x[i]);
      }
      return;
    case RowFormat::kFp8:
      store_blocks(64, quantised, place.scales, nullptr);
      for (int i = quantised / 64 + static_cast<int>(threadIdx.x); i < cache.scale_bytes;
           i += threads) {
        place.scales[i] = 0;
      }
      return store_tail(place.data + quantised);
    case RowFormat::kFp8All:
      return store_blocks(32, cache.width, place.scales, nullptr);
    case RowFormat::kFp8Row: {
      auto* scales = reinterpret_cast<float*>(place.data + quantised);
      store_blocks(128, quantised, nullptr, scales);
      return store_tail(reinterpret_cast<uint8_t*>(scales + quantised / 128));
    }
    case RowFormat::kFp8Key:
      return store_blocks(128, cache.width, nullptr, reinterpret_cast<float*>(place.scales));
    case RowFormat::kFp4All:
      for (int b = warp; b < cache.width / 16; b += warps) {
        const float most = fmaxf(WarpMagnitude(x + b * 16, 16), 6.0f * 0x1p-9f);
        const uint8_t code = CodeOfE4M3(most / 6.0f);
        if (lane == 0) place.scales[b] = code;
        StoreE2M1(x + b * 16, 16, FloatOfE4M3(code), place.data + b * 8);
      }
      return;
    case RowFormat::kFp4Key:
      for (int b = warp; b < cache.width / 32; b += warps) {
        const float most = fmaxf(WarpMagnitude(x + b * 32, 32), 6.0f * 0x1p-126f);
        const uint8_t e = CeilPowerOfTwo(most / 6.0f);
        if (lane == 0) place.scales[b] = e;
        StoreE2M1(x + b * 32, 32, FloatOfE8M0(e), place.data + b * 16);
      }
      return;
  }
}

}  // namespace hayate::ops::sm90
