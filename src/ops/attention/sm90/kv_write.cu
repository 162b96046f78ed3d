// Norm, rotation and the append to the cache: a warp takes four neighbouring heads of a token.
//
//   traffic  T · (Hq + 2·Hkv) · D activations read, T · Hq · D of them written in place, and
//            T · 2·Hkv · D elements of the cache; cos and sin [T, rotary_dim] f32 from L2
//   bound    memory; up to some hundred tokens latency: of one load of the activations, and of
//            token → row → page before it

#include "ops/attention/sm90/launch.h"
#include "ops/attention/sm90/token_head.cuh"
#include "ops/detail/sm90/launch.cuh"
#include "tensor/cuda/check.h"

namespace hayate::ops::sm90 {
namespace {

constexpr int kWarps = 4;
constexpr int kMaxHeadDim = 256;
// Of heads of one turn, so that the blocks of some three hundred tokens are there at once.
constexpr int kResidentBlocks = 8;
// Percent of a multiprocessor's memory for shared memory: what attention's blocks want. They join
// the blocks of this launch only where the division needs no change.
constexpr int kSharedPercent = 20;
// From so many rows of decode on this launch does not overlap the product before it. The loads in
// flight of the attention behind it want a large first-level cache; products leave a small one
// behind beside their shared memory, and that division changes only on a multiprocessor that has
// drained. Products of more than kMaxTokensBeside tokens have ended by themselves.
constexpr int32_t kDrainRows = 16;

// The page of a token, or −1: its row is the one thread's whose tokens it is among. All threads of
// the block call it.
__device__ int32_t PageOfToken(const AttentionRows& rows, int32_t token, int32_t page_of_row) {
  __shared__ int32_t pages[kWarps];
  int32_t page = -1;
#pragma unroll 2
  for (int32_t row = threadIdx.x; row < rows.num_rows; row += 32 * kWarps) {
    const int32_t begin = rows.q_begin[row], end = rows.q_begin[row + 1];
    const int32_t slot = rows.table_row == nullptr ? row : rows.table_row[row];
    if (begin <= token && token < end) {
      page = rows.page_table[int64_t{slot} * rows.page_table_stride + page_of_row];
    }
  }
  page = __reduce_max_sync(0xffffffffu, page);
  if (threadIdx.x % 32 == 0) pages[threadIdx.x / 32] = page;
  __syncthreads();
#pragma unroll
  for (int warp = 0; warp < kWarps; ++warp) page = max(page, pages[warp]);
  return page;
}

// Grid (T, ⌈(Hq + 2·Hkv) / heads of a block⌉).
template <typename T, typename TCache, int kQuads, int kTurns>
__global__ __launch_bounds__(32 * kWarps, kTurns == 1 ? kResidentBlocks : 1) void RopeKvWriteKernel(
    const __grid_constant__ RopeKvWriteParams params,
    const __grid_constant__ PagedCache<TCache> cache) {
  constexpr int kLanes = 32 / kQuads, kHeads = kWarps * kQuads;
  AllowNextLaunch();
  const int32_t token = blockIdx.x, first = static_cast<int32_t>(blockIdx.y) * kHeads;
  TokenHead<T, TCache, kQuads, kTurns> head(params, token,
                                            first + static_cast<int32_t>(threadIdx.x) / kLanes);
  // Rows, pages and turns were there before the step's first product.
  const bool has_entries = first + kHeads > params.num_q_heads;
  const int32_t position = has_entries ? params.positions[token] : 0;
  head.ReadFactors();
  const int32_t page =
      has_entries ? PageOfToken(params.rows, token, position / cache.page_tokens) : -1;
  WaitForPriorLaunches();
  head.Read();
  head.NormAndTurn();
  head.WriteQuery();
  head.WriteEntry(cache, page, position);
}

bool Aligned(const void* pointer) { return reinterpret_cast<uintptr_t>(pointer) % 16 == 0; }

// Whether a lane may take eight neighbours at a time.
bool TakesEights(const RopeKvWriteParams& params, const KvLayerView& cache) {
  return params.head_dim % 16 == 0 && params.rotary_dim % 16 == 0 && params.q_row_stride % 8 == 0 &&
         params.k_row_stride % 8 == 0 && params.v_row_stride % 8 == 0 && Aligned(params.q) &&
         Aligned(params.k) && Aligned(params.v) && Aligned(params.cos_sin) &&
         Aligned(params.q_norm) && Aligned(params.k_norm) && Aligned(cache.base) &&
         cache.page_stride % 16 == 0;
}

template <typename T, typename TCache, int kQuads>
void LaunchHeads(Stream stream, int64_t tokens, const RopeKvWriteParams& params,
                 const KvLayerView& view) {
  const int32_t heads = params.num_q_heads + 2 * params.num_kv_heads;
  const dim3 grid(static_cast<uint32_t>(tokens), CeilDiv(heads, kWarps * kQuads));
  const auto kernel = params.head_dim <= kTurnFeatures ? RopeKvWriteKernel<T, TCache, kQuads, 1>
                                                       : RopeKvWriteKernel<T, TCache, kQuads, 2>;
  CUDA_CHECK(
      stream.device,
      cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout, kSharedPercent));
  const PagedCache<TCache> cache(view);
  const bool drains = params.rows.plan.num_decode_blocks > 0 &&
                      params.rows.num_rows >= kDrainRows && tokens <= kMaxTokensBeside;
  if (!drains) {
    return LaunchDependent(stream, kernel, grid, 32 * kWarps, 0, params, cache);
  }
  cudaLaunchConfig_t config = {};
  config.gridDim = grid;
  config.blockDim = dim3(32 * kWarps);
  config.stream = static_cast<cudaStream_t>(stream.handle);
  CUDA_CHECK(stream.device, cudaLaunchKernelEx(&config, kernel, params, cache));
}

void Launch(Stream stream, int64_t tokens, DType activations, const RopeKvWriteParams& params,
            const KvLayerView& cache) {
  if (tokens == 0) return;
  CHECK_LE(params.head_dim, kMaxHeadDim);
  CHECK_EQ(params.head_dim % 4, 0);
  CHECK_EQ(params.rotary_dim % 4, 0);
  const auto launch = [&]<typename T>(T) {
    return WithFloatType(cache.dtype, [&]<typename TCache>(TCache) {
      if (TakesEights(params, cache)) {
        LaunchHeads<T, TCache, 4>(stream, tokens, params, cache);
      } else {
        LaunchHeads<T, TCache, 1>(stream, tokens, params, cache);
      }
    });
  };
  const bool known = activations == DType::kF32 ? launch(float{}) : launch(__nv_bfloat16{});
  CHECK(known) << "not a cache type: " << Info(cache.dtype).name;
  CUDA_CHECK_LAUNCH(stream, "rope_kv_write", tokens, params.num_q_heads, params.num_kv_heads,
                    params.head_dim);
}

RopeKvWriteParams WriteParams(const KvWriteArgs& write) {
  return {.k = write.k.data,
          .v = write.v.data,
          .k_row_stride = write.k_row_stride,
          .v_row_stride = write.v_row_stride,
          .num_kv_heads = write.cache.num_kv_heads,
          .head_dim = write.cache.head_dim,
          .positions = write.positions,
          .rows = write.rows};
}

}  // namespace

void KvWrite(Stream stream, const KvWriteArgs& args) {
  Launch(stream, args.k.shape[0], args.k.dtype, WriteParams(args), args.cache);
}

void RopeKvWrite(Stream stream, const RopeKvWriteArgs& args) {
  const RopeArgs& rope = args.rope;
  RopeKvWriteParams params = WriteParams(args.write);
  params.q = rope.q.data;
  params.q_row_stride = rope.q_row_stride;
  params.num_q_heads = static_cast<int32_t>(rope.q.shape[1]);
  params.rotary_dim = rope.rotary_dim;
  params.interleaved = rope.pairing == RopePairing::kInterleaved;
  params.rope_positions = rope.positions;
  params.cos_sin = rope.cos_sin;
  params.q_norm = rope.q_norm;
  params.k_norm = rope.k_norm;
  params.norm_eps = rope.norm_eps;
  Launch(stream, rope.q.shape[0], rope.q.dtype, params, args.write.cache);
}

}  // namespace hayate::ops::sm90
