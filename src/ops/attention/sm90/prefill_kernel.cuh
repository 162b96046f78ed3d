#pragma once
// Prefill attention on paged keys and values: warp-specialised, after FlashAttention-3 (Shah et al.
// 2024).
//
//   tile      128 queries (tokens × the heads of a group, token by token) of one row and kv head;
//             blocks of 128 keys (two pages), from the last visible one down
//   roles     a producer warp brings Q once a tile and K and V block by block through the copy
//             engine; two consumer warpgroups take 64 queries each. While one computes its softmax
//             the other has the tensor cores, and within one the products of block n with Q run
//             beside those of block n + 1 with V.
//   grid      a block for each multiprocessor that the plan gives; tiles lie longest first and are
//             dealt back and forth. Rows of many keys: clusters of two blocks with neighbouring
//             tiles; each brings one page of a block of keys to both, which halves what is read
//             from the second-level cache. Few tiles: a cluster for each, whose blocks attend a
//             part of its keys each (prefill_parts.cuh)
//   shared    Q 32 KB, two stages each of K and V 128 KB, out 32 KB at D = 128
//   flops     4 · D a visible pair; the diagonal costs half a block more
//   bound     the tensor cores; exponentials take half their time beside them (16 a cycle)

#include "ops/attention/sm90/prefill_consumer.cuh"
#include "ops/attention/sm90/prefill_producer.cuh"
#include "ops/attention/sm90/prefill_work.cuh"
#include "ops/detail/sm90/cluster.cuh"
#include "ops/detail/sm90/launch.cuh"
#include "ops/detail/sm90/tensor_map.h"
#include "tensor/cuda/check.h"

namespace hayate::ops::sm90 {

// Registers of a thread of each role; 128 · (producer + 2 · consumer) fit a multiprocessor.
template <typename TCache>
inline constexpr int kProducerRegisters = sizeof(TCache) == 1 ? 56 : 40;
template <typename TCache>
inline constexpr int kConsumerRegisters = sizeof(TCache) == 1 ? 224 : 232;

template <typename TCache, int kD, bool kCap, int kTiles, int kParts>
__global__ __launch_bounds__(kThreads,
                             1) void PrefillKernel(const __grid_constant__ PrefillParams params,
                                                   const __grid_constant__ CUtensorMap q_map,
                                                   const __grid_constant__ CUtensorMap kv_map) {
  using Shared = PrefillSharedOf<TCache, kD>;
  extern __shared__ std::byte shared_bytes[];
  auto* shared =
      reinterpret_cast<Shared*>((reinterpret_cast<uintptr_t>(shared_bytes) + 1023) / 1024 * 1024);
  if (threadIdx.x == 0) {
    constexpr uint32_t kConsumerWarps = 4 * kConsumers;
    constexpr uint32_t kConverterWarps = 3, kFills = sizeof(TCache) == 1 ? kConverterWarps : 1;
    InitBarrier(&shared->q_full, 1);
    InitBarrier(&shared->q_empty, kConsumerWarps);
    for (int stage = 0; stage < kStages; ++stage) {
      InitBarrier(&shared->k_full[stage], kFills);
      InitBarrier(&shared->k_empty[stage], kConsumerWarps * kTiles);
      InitBarrier(&shared->v_full[stage], kFills);
      InitBarrier(&shared->v_empty[stage], kConsumerWarps * kTiles);
      InitBarrier(&shared->raw_full[stage], 1);
      InitBarrier(&shared->raw_empty[stage], kConverterWarps);
    }
    FenceBarrierInit();
  }
  if constexpr (kTiles * kParts > 1) {
    ClusterSync();
  } else {
    __syncthreads();
  }
  // In this order: decode attention beside relies on it.
  WaitForPriorLaunches();
  AllowNextLaunch();
  if (threadIdx.x < 128) {
    LowerRegisters<kProducerRegisters<TCache>>();
    PrefillProducer<TCache, kD, kTiles, kParts>{params, q_map, kv_map, shared}.Run();
    if constexpr (kParts > 1) SitOutMerge<kParts>();
  } else {
    RaiseRegisters<kConsumerRegisters<TCache>>();
    PrefillConsumer<kD, kCap, kTiles, kParts>(params, shared, threadIdx.x / 128 - 1).Run();
  }
  // A block's shared memory is written, and its barriers are reached, by its partner until it ends.
  // Parts end behind a barrier of their own.
  if constexpr (kTiles > 1) ClusterSync();
}

// [2 · Hkv, P, D] of every page, in boxes of one page of a head and, of bf16, 64 features. How many
// pages there are is not known here; the table names no others.
inline Status MakeCacheMap(const KvLayerView& cache, CUtensorMap* map) {
  constexpr int64_t kAnyPages = int64_t{1} << 30;
  const int64_t element = Info(cache.dtype).block_bytes, row = cache.head_dim * element;
  const int64_t extents[] = {cache.head_dim, cache.page_tokens, 2 * cache.num_kv_heads, kAnyPages};
  const int64_t strides[] = {row, cache.page_tokens * row, cache.page_stride};
  const bool is_operand = cache.dtype == DType::kBF16;  // and not yet to be converted
  const int64_t box[] = {is_operand ? kHalf : cache.head_dim, kPlanPage, 1, 1};
  return MakeTensorMap({cache.base, cache.dtype, extents, strides, box, is_operand}, map);
}

// [T, Hq, D], in boxes of the tokens of a tile, one group and 64 features.
inline Status MakeQueryMap(const PagedAttentionArgs& args, CUtensorMap* map) {
  const int64_t d = args.cache.head_dim, element = sizeof(Bf16);
  const int64_t extents[] = {d, args.out.shape[1], args.out.shape[0]};
  const int64_t strides[] = {d * element, args.q_row_stride * element};
  const int64_t box[] = {kHalf, args.group_size, kBlockM / args.group_size};
  return MakeTensorMap({args.q.data, DType::kBF16, extents, strides, box}, map);
}

template <typename TCache, int kD, bool kCap, int kTiles, int kParts>
void LaunchPrefill(Stream stream, const PagedAttentionArgs& args) {
  const AttentionPlan& plan = args.rows.plan;
  const PrefillParams params{.out = reinterpret_cast<Bf16*>(args.out.data),
                             .tiles = plan.prefill_tiles,
                             .num_tiles = plan.num_prefill_tiles,
                             .num_kv_heads = args.cache.num_kv_heads,
                             .num_q_heads = static_cast<int32_t>(args.out.shape[1]),
                             .group_size = args.group_size,
                             .page_table = args.rows.page_table,
                             .page_table_stride = args.rows.page_table_stride,
                             .window = args.window,
                             .scale = args.scale,
                             .soft_cap = args.soft_cap,
                             .sinks = args.sinks};
  CUtensorMap q_map, kv_map;
  const Status q_status = MakeQueryMap(args, &q_map);
  if (!q_status.ok()) return stream.device->Fail(q_status);
  const Status kv_status = MakeCacheMap(args.cache, &kv_map);
  if (!kv_status.ok()) return stream.device->Fail(kv_status);
  constexpr int kBytes = sizeof(PrefillSharedOf<TCache, kD>) + 1024;
  constexpr auto* kKernel = PrefillKernel<TCache, kD, kCap, kTiles, kParts>;
  CUDA_CHECK(stream.device,
             cudaFuncSetAttribute(kKernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes));
  constexpr int kCluster = kTiles * kParts;
  const int32_t items = plan.num_prefill_tiles / kTiles * params.num_kv_heads;
  const int32_t seats = plan.prefill_processors / kCluster;
  // With a second tile a block would have to store the first one before it may be sent anything.
  const int32_t clusters = kParts > 1 ? items : std::min(items, seats);
  LaunchClusters(stream, kKernel, static_cast<unsigned>(clusters), kCluster, kThreads, kBytes,
                 params, q_map, kv_map);
}

template <typename TCache, int kD, bool kCap>
void LaunchPrefillTiles(Stream stream, const PagedAttentionArgs& args) {
  const AttentionPlan& plan = args.rows.plan;
  if constexpr (sizeof(TCache) == 2 && kD == 128) {
    if (plan.prefill_pairs) return LaunchPrefill<TCache, kD, kCap, 2, 1>(stream, args);
  }
  if constexpr (kD == 128) {
    if (plan.prefill_parts == 2) return LaunchPrefill<TCache, kD, kCap, 1, 2>(stream, args);
    if (plan.prefill_parts == 4) return LaunchPrefill<TCache, kD, kCap, 1, 4>(stream, args);
  }
  CHECK(!plan.prefill_pairs);
  CHECK_EQ(plan.prefill_parts, 1);
  LaunchPrefill<TCache, kD, kCap, 1, 1>(stream, args);
}

template <typename TCache>
void LaunchPrefillOf(Stream stream, const PagedAttentionArgs& args) {
  const bool cap = args.soft_cap > 0.0f;
  if (args.cache.head_dim == 64) {
    return cap ? LaunchPrefillTiles<TCache, 64, true>(stream, args)
               : LaunchPrefillTiles<TCache, 64, false>(stream, args);
  }
  CHECK_EQ(args.cache.head_dim, 128);
  return cap ? LaunchPrefillTiles<TCache, 128, true>(stream, args)
             : LaunchPrefillTiles<TCache, 128, false>(stream, args);
}

}  // namespace hayate::ops::sm90
