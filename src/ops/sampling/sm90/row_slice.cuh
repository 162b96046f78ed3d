#pragma once
// A row's logits from global memory into the cluster's shared memory, with the row's penalties,
// bias, banned ids and mask.

#include "ops/sampling/device_sampler.h"
#include "ops/sampling/sm90/cluster_row.cuh"

namespace hayate::ops::sm90 {

constexpr float kInfinity = __builtin_huge_valf();

struct RowHighest {
  float logit;  // of the whole row
  bool bad;     // NaN or +∞ in it
};

__device__ __forceinline__ bool IsBad(float logit) { return !(logit < kInfinity); }

__device__ __forceinline__ float Penalised(float logit, int32_t count, const SamplerRow& spec) {
  if (count == 0) return logit;
  const float scaled = logit > 0.0f ? __fdiv_rn(logit, spec.repetition_penalty)
                                    : __fmul_rn(logit, spec.repetition_penalty);
  return __fadd_rn(scaled, -__fadd_rn(__fmul_rn(spec.frequency_penalty, static_cast<float>(count)),
                                      spec.presence_penalty));
}

// The highest logit of the row, from what each thread saw. Leaves the warps' in warp_highest.
__device__ __forceinline__ RowHighest HighestOfRow(Row& row, float highest, bool bad) {
#pragma unroll
  for (int lane = 16; lane > 0; lane /= 2) {
    highest = fmaxf(highest, __shfl_xor_sync(kAllLanes, highest, lane));
  }
  float* warps = row.shared->warp_highest;
  const bool block_bad = __syncthreads_or(bad) != 0;
  if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = highest;
  __syncthreads();
  float block = warps[0];
  for (int warp = 1; warp < kWarps; ++warp) block = fmaxf(block, warps[warp]);
  const Gathered blocks = Exchange(row, KeyOf(block, 0), block_bad ? 1 : 0);
  return {LogitOf(MaxOfBlocks(blocks.a)), MaxOfBlocks(blocks.b) != 0};
}

// The slice as it is in global memory. `counts` [V] or null: penalties are applied on the way; what
// is returned is of the logits before them.
__device__ __forceinline__ RowHighest LoadSlice(Row& row, const float* logits, bool by_four,
                                                const int32_t* counts, const SamplerRow& spec) {
  const float* from = logits + row.begin;
  float highest = -kInfinity;
  bool bad = false;
  const auto put = [&](int i, float logit) {
    highest = fmaxf(highest, logit);
    bad |= IsBad(logit);
    row.x[i] = counts == nullptr ? logit : Penalised(logit, counts[row.begin + i], spec);
  };
  if (by_four) {
    constexpr int kInFlight = 4;
    for (int first = threadIdx.x * 4; first < row.count; first += kThreads * 4 * kInFlight) {
      float4 v[kInFlight];
#pragma unroll
      for (int j = 0; j < kInFlight; ++j) {
        const int i = first + j * kThreads * 4;
        if (i < row.count) v[j] = __ldcs(reinterpret_cast<const float4*>(from + i));
      }
#pragma unroll
      for (int j = 0; j < kInFlight; ++j) {
        const int i = first + j * kThreads * 4;
        if (i >= row.count) continue;
        if (counts == nullptr) {
          highest = fmaxf(highest, fmaxf(fmaxf(v[j].x, v[j].y), fmaxf(v[j].z, v[j].w)));
          bad |= IsBad(v[j].x) || IsBad(v[j].y) || IsBad(v[j].z) || IsBad(v[j].w);
          *reinterpret_cast<float4*>(row.x + i) = v[j];
        } else {
          put(i, v[j].x), put(i + 1, v[j].y), put(i + 2, v[j].z), put(i + 3, v[j].w);
        }
      }
    }
  } else {
    for (int i = threadIdx.x; i < row.count; i += kThreads) put(i, from[i]);
  }
  return HighestOfRow(row, highest, bad);
}

__device__ __forceinline__ bool Adjusts(const SamplerRow& spec) {
  return spec.counts_row >= 0 || spec.bitmask_row >= 0 || spec.bias_begin < spec.bias_end ||
         spec.banned_begin < spec.banned_end;
}

// What follows the penalties. Returns the highest adjusted logit.
__device__ __forceinline__ RowHighest AdjustSlice(Row& row, const SampleRowsArgs& args,
                                                  const SamplerRow& spec) {
  const int32_t* ids = args.bias_ids;
  for (int i = spec.bias_begin + static_cast<int>(threadIdx.x); i < spec.bias_end; i += kThreads) {
    const int at = ids[i] - row.begin;
    if (at < 0 || at >= row.count || (i > spec.bias_begin && ids[i - 1] == ids[i])) continue;
    for (int j = i; j < spec.bias_end && ids[j] == ids[i]; ++j) {
      row.x[at] = __fadd_rn(row.x[at], args.bias_values[j]);
    }
  }
  __syncthreads();
  for (int i = spec.banned_begin + static_cast<int>(threadIdx.x); i < spec.banned_end;
       i += kThreads) {
    const int at = args.banned_ids[i] - row.begin;
    if (at >= 0 && at < row.count) row.x[at] = -kInfinity;
  }
  __syncthreads();
  const uint32_t* allowed = nullptr;
  if (spec.bitmask_row >= 0) {
    allowed = args.bitmasks + int64_t{spec.bitmask_row} * ((row.vocab_size + 31) / 32);
  }
  float highest = -kInfinity;
  bool bad = false;
  for (int i = threadIdx.x; i < row.count; i += kThreads) {
    const int id = row.begin + i;
    if (allowed != nullptr && (allowed[id / 32] >> (id % 32) & 1) == 0) row.x[i] = -kInfinity;
    highest = fmaxf(highest, row.x[i]);
    bad |= IsBad(row.x[i]);
  }
  return HighestOfRow(row, highest, bad);
}

}  // namespace hayate::ops::sm90
