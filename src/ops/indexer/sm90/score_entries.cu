// Computes  score[t, e] = Σ_h relu(q[t, h] · key[e]) · weight[t, h] · weight_scale, in fp32
// Grid      [entries / 128, tokens]; blocks past a token's entries end at once
// Threads   one per entry, whose key it holds in registers; all read the same query from shared
//           memory
// Order     a product by features in order, the sum by heads in order
// Bound     fp32 multiplications: Hi · Di of them for every entry and token

#include "base/align.h"
#include "base/check.h"
#include "ops/attention/sm90/rows.cuh"
#include "ops/detail/sm90/launch.cuh"
#include "ops/indexer/sm90/indexer.h"
#include "ops/sparse_attention/sm90/row_cache.cuh"

namespace hayate::ops::sm90 {
namespace {

constexpr int kThreads = 128;

// Larger floats give larger numbers, none gives kNoEntry.
__device__ __forceinline__ uint32_t OrderOf(float x) {
  const uint32_t bits = __float_as_uint(x);
  const uint32_t order = (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
  return max(order, 1u);
}

// Whether entry e lies in one of the token's candidate blocks, which ascend.
__device__ bool IsCandidate(const IndexCandidates& candidates, int64_t token, int32_t e) {
  const int32_t* blocks = candidates.blocks + token * candidates.max_blocks;
  const int32_t block = e / candidates.block_size;
  int32_t low = 0, high = candidates.counts[token];
  while (low < high) {
    const int32_t middle = (low + high) / 2;
    if (blocks[middle] < block) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low < candidates.counts[token] && blocks[low] == block;
}

// Keys of up to kWidth features; those beyond the key's width are 0.
template <typename X, int kWidth>
__global__ void __launch_bounds__(kThreads)
    ScoreKernel(const __grid_constant__ IndexPass pass, const __grid_constant__ RowCache cache,
                const X* q, const float* weights, int heads) {
  WaitForPriorLaunches();
  AllowNextLaunch();
  extern __shared__ __align__(16) float shared[];  // q [heads, kWidth], then weights [heads]
  const IndexerArgs& args = pass.args;
  const int64_t token = pass.first_token + static_cast<int64_t>(blockIdx.y);
  const int32_t visible = (args.positions[token] + 1) / args.ratio;
  const auto first = static_cast<int32_t>(blockIdx.x) * kThreads;
  if (first >= visible) return;
  // All are taken without looking at them.
  if (args.candidate_use == CandidateUse::kNone && visible <= args.top_k) return;
  float* head_weights = shared + heads * kWidth;
  for (int i = threadIdx.x; i < heads * kWidth; i += kThreads) {
    const int feature = i % kWidth;
    shared[i] = feature < cache.width
                    ? ToFloat(q[(token * heads + i / kWidth) * cache.width + feature])
                    : 0.0f;
  }
  for (int i = threadIdx.x; i < heads; i += kThreads) {
    head_weights[i] = weights[token * heads + i] * args.weight_scale;
  }
  __syncthreads();
  const int32_t e = first + static_cast<int32_t>(threadIdx.x);
  if (e >= visible) return;
  uint32_t* to = pass.scores + static_cast<int64_t>(blockIdx.y) * pass.max_entries + e;
  if (args.candidate_use == CandidateUse::kConsume && !IsCandidate(args.candidates, token, e)) {
    *to = kNoEntry;
    return;
  }
  const int32_t row = RowOfToken(args.rows, static_cast<int32_t>(token));
  const int32_t page = max(args.rows.PagesOf(row)[e / cache.page_rows], 0);
  const RowPlace place = PlaceOf(cache, page, e % cache.page_rows);
  float key[kWidth];
#pragma unroll
  for (int i = 0; i < kWidth; ++i) key[i] = i < cache.width ? RowElement(cache, place, i) : 0.0f;
  float sum = 0.0f;
  for (int h = 0; h < heads; ++h) {
    const float4* query = reinterpret_cast<const float4*>(shared + h * kWidth);
    float dot = 0.0f;
#pragma unroll
    for (int i = 0; i < kWidth / 4; ++i) {
      const float4 four = query[i];
      dot = fmaf(four.x, key[4 * i], dot);
      dot = fmaf(four.y, key[4 * i + 1], dot);
      dot = fmaf(four.z, key[4 * i + 2], dot);
      dot = fmaf(four.w, key[4 * i + 3], dot);
    }
    sum = fmaf(fmaxf(dot, 0.0f), head_weights[h], sum);
  }
  *to = OrderOf(sum);
}

template <typename X, int kWidth>
void Launch(const Stream& stream, const IndexPass& pass) {
  const auto heads = static_cast<int>(pass.args.q.shape[1]);
  const size_t shared = static_cast<size_t>(heads) * (kWidth + 1) * sizeof(float);
  CUDA_CHECK(stream.device, cudaFuncSetAttribute(ScoreKernel<X, kWidth>,
                                                 cudaFuncAttributeMaxDynamicSharedMemorySize,
                                                 static_cast<int>(shared)));
  const dim3 grid(static_cast<unsigned>(CeilDiv<int64_t>(pass.max_entries, kThreads)),
                  static_cast<unsigned>(pass.num_tokens));
  LaunchDependent(stream, ScoreKernel<X, kWidth>, grid, kThreads, shared, pass,
                  RowCache(pass.args.keys), reinterpret_cast<const X*>(pass.args.q.data),
                  pass.args.weights.as<float>(), heads);
}

template <typename X>
void LaunchWidth(const Stream& stream, const IndexPass& pass) {
  if (pass.args.keys.width <= 32) return Launch<X, 32>(stream, pass);
  CHECK_LE(pass.args.keys.width, 128);
  Launch<X, 128>(stream, pass);
}

}  // namespace

void ScoreEntries(Stream stream, const IndexPass& pass) {
  DCHECK(pass.args.weights.dtype == DType::kF32);
  if (pass.args.q.dtype == DType::kBF16) {
    LaunchWidth<__nv_bfloat16>(stream, pass);
  } else {
    CHECK(pass.args.q.dtype == DType::kF32) << Info(pass.args.q.dtype).name;
    LaunchWidth<float>(stream, pass);
  }
  CUDA_CHECK_LAUNCH(stream, "score_entries", pass.num_tokens, pass.max_entries);
}

}  // namespace hayate::ops::sm90
