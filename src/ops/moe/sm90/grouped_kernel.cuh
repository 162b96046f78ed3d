#pragma once
// Computes  GroupedProductArgs, for bf16 activations and weights in bf16, fp8 or MXFP4
// Operands  weights are the rows of mma m16n8k16, tokens its columns. Both go from memory to
//           registers without shared memory: of every 4 · kElements columns a lane takes kElements
//           neighbours, 16 bytes of weights, and the matching ones of x. That permutes k inside a
//           step, alike in both operands.
// Grid      [features / (16 or 32 per feature warp), tiles]; blocks past the last tile end at once
// Warps     a warp has two sets of 16 rows: gate and up of the same features, or 32 features.
//           kSplit warps share a set of features: chunks of k in turns, added in order of warps
// Numbers   codes become bf16 exactly; MXFP4 scales too, being powers of two. FP8 blocks of 128
//           columns are summed apart and scaled in fp32, rows' scales come last.
// Order     chunks by warp, in order of k: depends on K and kSplit, not on the tile
// Traffic   an expert's weights once per tile of its pairs; x from the caches
// Bound     memory for small tiles, the first-level cache for large ones
// Requires  rows of 16 bytes: K % 8 of bf16, % 128 of fp8, % 32 of MXFP4

#include "base/align.h"
#include "base/check.h"
#include "ops/activation/sm90/glu.cuh"
#include "ops/attention/sm90/mma.cuh"
#include "ops/detail/sm90/eight.cuh"
#include "ops/detail/sm90/launch.cuh"
#include "ops/moe/sm90/pairs.cuh"

namespace hayate::ops::sm90 {
namespace grouped {

constexpr int kWarps = 4;
constexpr int kTileRows = 16;  // of the matrix instruction

// How a lane reads weights. Elements of 16 bytes, columns of a chunk, and bytes of `count` columns.
template <MatrixLayout kLayout>
struct Codes;
template <>
struct Codes<MatrixLayout::kBf16> {
  static constexpr int kElements = 8, kChunk = 64;
  static __host__ __device__ constexpr int64_t Bytes(int64_t count) { return 2 * count; }
  // Columns 4m … 4m + 3 of the lane as pairs.
  static __device__ __forceinline__ uint2 Four(const uint32_t (&words)[4], int m, uint32_t) {
    return {words[2 * m], words[2 * m + 1]};
  }
};
struct Fp8Codes {
  static constexpr int kElements = 16, kChunk = 128;
  static __host__ __device__ constexpr int64_t Bytes(int64_t count) { return count; }
  static __device__ __forceinline__ uint32_t Bf16Pair(uint32_t codes) {
    const uint32_t halves = HalvesOfE4M3(codes & 0xFFFF);
    const float2 pair = __half22float2(reinterpret_cast<const __half2&>(halves));
    return Packed(pair.x, pair.y, __nv_bfloat16());
  }
  static __device__ __forceinline__ uint2 Four(const uint32_t (&words)[4], int m, uint32_t) {
    return {Bf16Pair(words[m]), Bf16Pair(words[m] >> 16)};
  }
};
template <>
struct Codes<MatrixLayout::kFp8Block> : Fp8Codes {};
template <>
struct Codes<MatrixLayout::kFp8Vector> : Fp8Codes {};
template <>
struct Codes<MatrixLayout::kMxfp4> {
  static constexpr int kElements = 32, kChunk = 128;
  static __host__ __device__ constexpr int64_t Bytes(int64_t count) { return count / 2; }
  // A code's magnitude bits, put where a bf16 has its lowest exponent bits and its highest
  // mantissa bit, are its value · 2⁻¹²⁶; subnormals come out right as well.
  static __device__ __forceinline__ uint32_t Bf16Pair(uint32_t codes, uint32_t scale) {
    const uint32_t bits = (codes & 0x00080008u) << 12 | (codes & 0x00070007u) << 6;
    const uint32_t up = 0x7E807E80u;  // 2¹²⁶ twice
    const __nv_bfloat162 value = __hmul2_rn(reinterpret_cast<const __nv_bfloat162&>(bits),
                                            reinterpret_cast<const __nv_bfloat162&>(up));
    const __nv_bfloat162 scaled = __hmul2_rn(value, reinterpret_cast<const __nv_bfloat162&>(scale));
    return reinterpret_cast<const uint32_t&>(scaled);
  }
  // `scale`: a pair of equal bf16.
  static __device__ __forceinline__ uint2 Four(const uint32_t (&words)[4], int m, uint32_t scale) {
    const uint32_t codes = words[m / 2] >> (m % 2 * 16);
    return {Bf16Pair((codes & 0xF) | (codes & 0xF0) << 12, scale),
            Bf16Pair((codes >> 8 & 0xF) | (codes & 0xF000) << 4, scale)};
  }
  // 2^(e − 127) twice.
  static __device__ __forceinline__ uint32_t ScalePair(uint32_t e) {
    const uint32_t bits = e == 0 ? 0x40 : e << 7;
    return bits | bits << 16;
  }
};

// A chunk's weights of one lane: two sets, rows r and r + 8 of each.
template <MatrixLayout kLayout>
struct Chunk {
  static constexpr int kSteps = Codes<kLayout>::kChunk / (4 * Codes<kLayout>::kElements);
  uint32_t words[kSteps][2][2][4];
  uint32_t scale[2][2];  // MXFP4
};

template <MatrixLayout kLayout, int kTiles, int kSplit, bool kGated>
class WarpProduct {
  using C = Codes<kLayout>;
  using X = __nv_bfloat16;
  static constexpr int kSteps = Chunk<kLayout>::kSteps;

 public:
  // `first`: the warp's first feature.
  __device__ WarpProduct(const GroupedProductArgs& args, const ExpertTile& tile, int64_t first,
                         int split)
      : k_(args.w.k), split_(split) {
    const int lane = threadIdx.x % 32, r = lane / 4, j = lane % 4;
    const int64_t features = kGated ? args.w.n / 2 : args.w.n;
    const auto* storage = reinterpret_cast<const uint8_t*>(args.w.storage[tile.expert]);
    column_ = j * C::kElements;
#pragma unroll
    for (int s = 0; s < 2; ++s) {
      const int part = kGated ? s : 0;
      const int64_t row0 = first + (kGated ? 0 : s * kTileRows);
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int64_t row = min(row0 + r + 8 * half, features - 1);
        rows_[s][half] = storage + args.w.codes[part] + C::Bytes(row * k_ + column_);
        if constexpr (kLayout == MatrixLayout::kMxfp4) {
          scales_[s][half] = storage + args.w.scales[part] + (row * k_ + column_) / 32;
        }
      }
      if constexpr (kLayout == MatrixLayout::kFp8Block) {
        block_scales_[s] = reinterpret_cast<const float*>(storage + args.w.scales[part]) +
                           min(row0, features - 1) / kScaleColumns;
        scale_stride_ = args.w.scale_stride;
      }
    }
#pragma unroll
    for (int i = 0; i < kTiles; ++i) {
      const int32_t pair = PairOf(args.pairs, tile, min(i * 8 + r, tile.count - 1));
      x_[i] = reinterpret_cast<const X*>(args.x.data) +
              int64_t{pair / args.pairs_per_row} * args.x_stride + column_;
    }
  }

  // sums[set][tile]: as Mma's d.
  __device__ void Run(float (&sums)[2][kTiles][4]) const {
    constexpr int64_t kStride = kSplit * C::kChunk;
    // Where memory is the bound, the next chunk's weights are on their way meanwhile.
    constexpr bool kAhead = kSplit > 1;
    Chunk<kLayout> chunk, next;
    int64_t k0 = split_ * C::kChunk;
    if constexpr (kAhead) Load(k0, chunk);
    for (; k0 < k_; k0 += kStride) {
      if constexpr (kAhead) {
        Load(k0 + kStride, next);
      } else {
        Load(k0, chunk);
      }
      if constexpr (kLayout == MatrixLayout::kFp8Block) {
        float part[2][kTiles][4] = {};
        Multiply(chunk, k0, part);
#pragma unroll
        for (int s = 0; s < 2; ++s) {
          const float scale = block_scales_[s][k0 / kScaleColumns * scale_stride_];
#pragma unroll
          for (int i = 0; i < kTiles; ++i) {
#pragma unroll
            for (int q = 0; q < 4; ++q) sums[s][i][q] = fmaf(scale, part[s][i][q], sums[s][i][q]);
          }
        }
      } else {
        Multiply(chunk, k0, sums);
      }
      if constexpr (kAhead) chunk = next;
    }
  }

 private:
  __device__ __forceinline__ bool Inside(int64_t k) const { return k + column_ < k_; }

  __device__ __forceinline__ void Load(int64_t k0, Chunk<kLayout>& chunk) const {
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      const int64_t k = k0 + step * 4 * C::kElements;
      const bool inside = Inside(k);
#pragma unroll
      for (int s = 0; s < 2; ++s) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          uint4 bits = {};
          if (inside) bits = LoadStreamed(rows_[s][half] + C::Bytes(k));
          uint32_t(&words)[4] = chunk.words[step][s][half];
          words[0] = bits.x;
          words[1] = bits.y;
          words[2] = bits.z;
          words[3] = bits.w;
          if constexpr (kLayout == MatrixLayout::kMxfp4) {
            chunk.scale[s][half] = inside ? scales_[s][half][k / 32] : 0;
          }
        }
      }
    }
  }

  __device__ __forceinline__ void Multiply(const Chunk<kLayout>& chunk, int64_t k0,
                                           float (&sums)[2][kTiles][4]) const {
    uint32_t scale[2][2] = {};
    if constexpr (kLayout == MatrixLayout::kMxfp4) {
#pragma unroll
      for (int i = 0; i < 4; ++i) scale[i / 2][i % 2] = C::ScalePair(chunk.scale[i / 2][i % 2]);
    }
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      const int64_t k = k0 + step * 4 * C::kElements;
      const bool inside = Inside(k);
#pragma unroll
      for (int c = 0; c < C::kElements / 8; ++c) {
        uint4 x[kTiles];
#pragma unroll
        for (int i = 0; i < kTiles; ++i) {
          x[i] = uint4{};
          if (inside) x[i] = *reinterpret_cast<const uint4*>(x_[i] + k + c * 8);
        }
#pragma unroll
        for (int m = 0; m < 2; ++m) {
#pragma unroll
          for (int s = 0; s < 2; ++s) {
            const uint2 low = C::Four(chunk.words[step][s][0], 2 * c + m, scale[s][0]);
            const uint2 high = C::Four(chunk.words[step][s][1], 2 * c + m, scale[s][1]);
            const uint32_t a[4] = {low.x, high.x, low.y, high.y};
#pragma unroll
            for (int i = 0; i < kTiles; ++i) {
              Mma(sums[s][i], a, m == 0 ? x[i].x : x[i].z, m == 0 ? x[i].y : x[i].w, X());
            }
          }
        }
      }
    }
  }

  const int64_t k_;
  const int split_;
  int column_;  // of the lane in a step
  const uint8_t* rows_[2][2];
  const uint8_t* scales_[2][2];
  const float* block_scales_[2];
  int64_t scale_stride_ = 0;
  const X* x_[kTiles];
};

// Features of a block.
template <int kSplit, bool kGated>
constexpr int kBlockFeatures = kWarps / kSplit* kTileRows*(kGated ? 1 : 2);

// Finishes and writes what a lane summed of one set: rows r and r + 8, tokens 2j and 2j + 1.
template <MatrixLayout kLayout, bool kGated>
class Writer {
 public:
  __device__ Writer(const GroupedProductArgs& args, const ExpertTile& tile, int64_t first)
      : args_(args),
        tile_(tile),
        first_(first),
        features_(kGated ? args.w.n / 2 : args.w.n),
        storage_(args.w.storage[tile.expert]),
        bias_(args.bias == nullptr ? nullptr : args.bias + tile.expert * args.w.n) {}

  // Accumulator q of tile i of both sets.
  __device__ void Write(int i, int q, float sum0, float sum1) const {
    const int lane = threadIdx.x % 32;
    const int token = i * 8 + lane % 4 * 2 + q % 2;
    const int64_t row = first_ + lane / 4 + q / 2 * 8;
    if (token >= tile_.count) return;
    const int64_t pair = PairOf(args_.pairs, tile_, token);
    if constexpr (kGated) {
      if (row >= features_) return;
      Store(pair, row,
            GatedUnit(Finished(sum0, 0, row, row), Finished(sum1, 1, row, features_ + row),
                      args_.form));
    } else {
      if (row < features_) Store(pair, row, Finished(sum0, 0, row, row));
      const int64_t other = row + kTileRows;
      if (other < features_) Store(pair, other, Finished(sum1, 0, other, other));
    }
  }

 private:
  // Row `row` of a part, `feature` of the whole matrix.
  __device__ float Finished(float sum, int part, int64_t row, int64_t feature) const {
    if constexpr (kLayout == MatrixLayout::kFp8Vector) {
      sum *= reinterpret_cast<const float*>(storage_ + args_.w.scales[part])[row];
    }
    return bias_ == nullptr ? sum : sum + bias_[feature];
  }
  __device__ void Store(int64_t pair, int64_t row, float value) const {
    if (args_.weights != nullptr) value *= args_.weights[pair];
    reinterpret_cast<__nv_bfloat16*>(args_.out.data)[pair * args_.out_stride + row] =
        __float2bfloat16_rn(value);
  }

  const GroupedProductArgs& args_;
  const ExpertTile& tile_;
  const int64_t first_, features_;
  const std::byte* storage_;
  const float* bias_;
};

template <MatrixLayout kLayout, int kTiles, int kSplit, bool kGated>
__global__ void __launch_bounds__(kWarps * 32)
    ProductKernel(const __grid_constant__ GroupedProductArgs args) {
  WaitForPriorLaunches();
  AllowNextLaunch();
  const ExpertTile tile = TileOf(args.pairs, static_cast<int32_t>(blockIdx.y));
  if (tile.count == 0) return;
  constexpr int kFeatureWarps = kWarps / kSplit;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int64_t first = static_cast<int64_t>(blockIdx.x) * kBlockFeatures<kSplit, kGated> +
                        warp % kFeatureWarps * (kBlockFeatures<kSplit, kGated> / kFeatureWarps);
  float sums[2][kTiles][4] = {};
  WarpProduct<kLayout, kTiles, kSplit, kGated>(args, tile, first, warp / kFeatureWarps).Run(sums);
  const Writer<kLayout, kGated> writer(args, tile, first);
  if constexpr (kSplit == 1) {
#pragma unroll
    for (int i = 0; i < kTiles; ++i) {
#pragma unroll
      for (int q = 0; q < 4; ++q) writer.Write(i, q, sums[0][i][q], sums[1][i][q]);
    }
  } else {
    static_assert(kSplit == kWarps, "a warp finishes one of four accumulators");
    __shared__ float parts[kWarps][2][kTiles][4][32];
#pragma unroll
    for (int at = 0; at < 2 * kTiles * 4; ++at) {
      const int s = at / (kTiles * 4), i = at / 4 % kTiles, q = at % 4;
      parts[warp][s][i][q][lane] = sums[s][i][q];
    }
    __syncthreads();
#pragma unroll
    for (int i = 0; i < kTiles; ++i) {
      float total[2] = {};
#pragma unroll
      for (int w = 0; w < kWarps; ++w) {
        total[0] += parts[w][0][i][warp][lane];
        total[1] += parts[w][1][i][warp][lane];
      }
      writer.Write(i, warp, total[0], total[1]);
    }
  }
}

template <MatrixLayout kLayout, int kTiles, int kSplit, bool kGated>
void Launch(const Stream& stream, const GroupedProductArgs& args) {
  const int64_t features = kGated ? args.w.n / 2 : args.w.n;
  const dim3 grid(static_cast<unsigned>(CeilDiv<int64_t>(features, kBlockFeatures<kSplit, kGated>)),
                  static_cast<unsigned>(args.pairs.max_tiles));
  LaunchDependent(stream, ProductKernel<kLayout, kTiles, kSplit, kGated>, grid, kWarps * 32, 0,
                  args);
  CUDA_CHECK_LAUNCH(stream, "grouped_product", args.x.rows(), args.w.n, args.w.k);
}

template <MatrixLayout kLayout, int kTiles, int kSplit>
void LaunchGated(const Stream& stream, const GroupedProductArgs& args) {
  if (args.gated) return Launch<kLayout, kTiles, kSplit, true>(stream, args);
  Launch<kLayout, kTiles, kSplit, false>(stream, args);
}

// By the tile: few tokens share the columns among warps, many the features.
template <MatrixLayout kLayout>
void LaunchLayout(const Stream& stream, const GroupedProductArgs& args) {
  switch (args.pairs.tile_tokens) {
    case 8:
      return LaunchGated<kLayout, 1, kWarps>(stream, args);
    case 16:
      return LaunchGated<kLayout, 2, kWarps>(stream, args);
    case 32:
      return LaunchGated<kLayout, 4, kWarps>(stream, args);
    default:
      CHECK_EQ(args.pairs.tile_tokens, 64);
      return LaunchGated<kLayout, 8, 1>(stream, args);
  }
}

}  // namespace grouped
}  // namespace hayate::ops::sm90
