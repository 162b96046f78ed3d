#pragma once

#include "ops/attention/sm90/decode_attention.h"
#include "ops/attention/sm90/decode_kernel.cuh"
#include "ops/attention/sm90/row_decode_kernel.cuh"
#include "ops/detail/sm90/launch.cuh"

namespace hayate::ops::sm90 {

inline DecodeParams DecodeParamsOf(const PagedAttentionArgs& args) {
  return {.out = reinterpret_cast<__nv_bfloat16*>(args.out.data),
          .q = reinterpret_cast<const __nv_bfloat16*>(args.q.data),
          .q_row_stride = args.q_row_stride,
          .page_table = args.rows.page_table,
          .page_table_stride = args.rows.page_table_stride,
          .plan = args.rows.plan,
          .scale = args.scale,
          .soft_cap = args.soft_cap,
          .num_q_heads = static_cast<int32_t>(args.out.shape[1]),
          .group_size = args.group_size,
          .group_offset = args.group_offset,
          .window = args.window,
          .sinks = args.sinks};
}

// Percent of what a multiprocessor divides between shared memory and the first-level cache, so that
// `bytes` of the former have room.
constexpr int SharedPercent(int bytes) {
  constexpr int kDivided = 228 * 1024, kReserved = 1024;  // bytes, the latter a block
  return CeilDiv(100 * (bytes + kReserved), kDivided);
}

template <typename S>
void LaunchPlannedDecode(Stream stream, const PagedAttentionArgs& args) {
  const AttentionPlan& plan = args.rows.plan;
  const DecodeParams params = DecodeParamsOf(args);
  constexpr int kBytes = sizeof(DecodeShared<S>);
  CUDA_CHECK(
      stream.device,
      cudaFuncSetAttribute(DecodeKernel<S>, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes));
  // Of both blocks of a multiprocessor; the rest is cache for their loads in flight.
  CUDA_CHECK(stream.device,
             cudaFuncSetAttribute(DecodeKernel<S>, cudaFuncAttributePreferredSharedMemoryCarveout,
                                  2 * SharedPercent(kBytes)));
  const PagedCache<typename S::Cache> cache(args.cache);
  LaunchDependent(stream, DecodeKernel<S>, plan.num_decode_blocks, 32 * kDecodeWarps, kBytes,
                  params, cache);
}

template <typename S>
void LaunchRowDecode(Stream stream, const PagedAttentionArgs& args) {
  const RowParams params{.decode = DecodeParamsOf(args),
                         .kv_len = args.rows.kv_len,
                         .table_row = args.rows.table_row,
                         .num_tokens = static_cast<int32_t>(args.out.shape[0])};
  constexpr int kBytes = sizeof(RowShared<S>);
  CUDA_CHECK(stream.device,
             cudaFuncSetAttribute(RowDecodeKernel<S>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                  kBytes));
  // Its loads in flight hold lines of the first-level cache, of which products leave 28 KB.
  CUDA_CHECK(stream.device, cudaFuncSetAttribute(RowDecodeKernel<S>,
                                                 cudaFuncAttributePreferredSharedMemoryCarveout,
                                                 SharedPercent(kBytes)));
  const PagedCache<typename S::Cache> cache(args.cache);
  LaunchClusters(stream, RowDecodeKernel<S>, static_cast<unsigned>(args.cache.num_kv_heads),
                 kRowBlocks, 32 * kRowWarps, kBytes, params, cache);
}

template <typename S>
void LaunchDecode(Stream stream, const PagedAttentionArgs& args) {
  if constexpr (S::kD % kRowFeatures == 0) {
    if (args.rows.plan.short_row) return LaunchRowDecode<S>(stream, args);
  }
  LaunchPlannedDecode<S>(stream, args);
}

template <int kHeadDim>
void LaunchDecodeOf(Stream stream, const PagedAttentionArgs& args) {
  const bool wide = args.rows.plan.decode_queries > 8;
  if (args.cache.dtype == DType::kF8E4M3) {
    using E4M3 = __nv_fp8_e4m3;
    return wide ? LaunchDecode<DecodeShape<E4M3, kHeadDim, 2>>(stream, args)
                : LaunchDecode<DecodeShape<E4M3, kHeadDim, 1>>(stream, args);
  }
  return wide ? LaunchDecode<DecodeShape<__nv_bfloat16, kHeadDim, 2>>(stream, args)
              : LaunchDecode<DecodeShape<__nv_bfloat16, kHeadDim, 1>>(stream, args);
}

}  // namespace hayate::ops::sm90
