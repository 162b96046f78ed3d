// Attention by its definition in fp32: a CTA a query (token, head), a warp a key, a lane a feature.
//
//   order    warp w takes the positions ≡ w (mod kWarps), ascending, with an online softmax; the
//            warps are merged in ascending order. Nothing depends on other rows or on chunks.
//   traffic  every query reads its whole prefix: 2 · D elements a key and query, mostly from L2

#include <cfloat>

#include "ops/attention/sm90/launch.h"
#include "ops/attention/sm90/numbers.cuh"
#include "ops/attention/sm90/rows.cuh"
#include "tensor/cuda/check.h"

namespace hayate::ops::sm90 {
namespace {

constexpr int kWarps = 8;
constexpr int kMaxHeadDim = 256;
constexpr int kPerLane = kMaxHeadDim / 32;

struct Params {
  void* out;      // [T, Hq, D]
  const void* q;  // [T, Hq, D]
  int64_t q_row_stride;
  AttentionRows rows;
  float scale, soft_cap;
  int32_t num_q_heads, group_size, group_offset, window;
  const float* sinks;
};

// Softmax state of one warp; lane l holds features l, l + 32, … of the weighted sum.
struct State {
  float max = -INFINITY, sum = 0.0f;
  float o[kPerLane] = {};
};

template <typename T>
__device__ void LoadHead(const T* x, int32_t d, float (&out)[kPerLane]) {
#pragma unroll
  for (int i = 0; i < kPerLane; ++i) {
    const int32_t feature = threadIdx.x % 32 + 32 * i;
    out[i] = feature < d ? ToFloat(x[feature]) : 0.0f;
  }
}

template <typename TCache>
__device__ void AddKey(const Params& params, const PagedCache<TCache>& cache, int32_t page,
                       int32_t head, int32_t slot, const float (&q)[kPerLane], State* state) {
  const int32_t d = cache.head_dim;
  float k[kPerLane], v[kPerLane];
  LoadHead(cache.Keys(page, head) + int64_t{slot} * d, d, k);
  LoadHead(cache.Values(page, head) + int64_t{slot} * d, d, v);
  float score = 0.0f;
#pragma unroll
  for (int i = 0; i < kPerLane; ++i) score += q[i] * k[i];
  score = WarpSum(score) * params.scale;
  if (params.soft_cap > 0.0f) score = params.soft_cap * tanhf(score / params.soft_cap);
  const float max = fmaxf(state->max, score);
  const float correction = expf(state->max - max), p = expf(score - max);
  state->max = max;
  state->sum = state->sum * correction + p;
#pragma unroll
  for (int i = 0; i < kPerLane; ++i) state->o[i] = state->o[i] * correction + p * v[i];
}

// Grid (T, Hq).
template <typename T, typename TCache>
__global__ __launch_bounds__(32 *
                             kWarps) void SimpleAttentionKernel(const Params params,
                                                                const PagedCache<TCache> cache) {
  const int32_t token = blockIdx.x, head = blockIdx.y, warp = threadIdx.x / 32;
  const int32_t d = cache.head_dim;
  const int32_t row = RowOfToken(params.rows, token);
  const int32_t last =
      params.rows.kv_len[row] - (params.rows.q_begin[row + 1] - token);  // its position
  const int32_t first = params.window > 0 ? max(0, last - params.window + 1) : 0;
  const int32_t kv_head = (head + params.group_offset) / params.group_size;
  const int32_t* pages = params.rows.PagesOf(row);

  float q[kPerLane];
  LoadHead(static_cast<const T*>(params.q) + token * params.q_row_stride + int64_t{head} * d, d, q);
  State state;
  for (int32_t s = first / kWarps * kWarps + warp; s <= last; s += kWarps) {
    if (s < first) continue;
    const int32_t page = pages[s / cache.page_tokens];
    AddKey(params, cache, page, kv_head, s % cache.page_tokens, q, &state);
  }

  __shared__ float max_of[kWarps], sum_of[kWarps], o_of[kWarps][kMaxHeadDim];
  if (threadIdx.x % 32 == 0) {
    max_of[warp] = state.max;
    sum_of[warp] = state.sum;
  }
#pragma unroll
  for (int i = 0; i < kPerLane; ++i) o_of[warp][threadIdx.x % 32 + 32 * i] = state.o[i];
  __syncthreads();
  const int32_t feature = threadIdx.x;
  if (feature >= d) return;
  float highest = params.sinks != nullptr ? params.sinks[head] : -INFINITY;
  for (int w = 0; w < kWarps; ++w) highest = fmaxf(highest, max_of[w]);
  float sum = params.sinks != nullptr ? expf(params.sinks[head] - highest) : 0.0f, o = 0.0f;
  for (int w = 0; w < kWarps; ++w) {
    const float weight = max_of[w] == -INFINITY ? 0.0f : expf(max_of[w] - highest);
    sum += weight * sum_of[w];
    o += weight * o_of[w][feature];
  }
  const int64_t index = (int64_t{token} * params.num_q_heads + head) * d + feature;
  FromFloat(sum > 0.0f ? o / sum : 0.0f, static_cast<T*>(params.out) + index);
}

}  // namespace

void SimpleAttention(Stream stream, const PagedAttentionArgs& args) {
  const int64_t tokens = args.out.shape[0], heads = args.out.shape[1];
  if (tokens == 0 || heads == 0) return;
  CHECK_LE(args.cache.head_dim, kMaxHeadDim);
  const Params params{.out = args.out.data,
                      .q = args.q.data,
                      .q_row_stride = args.q_row_stride,
                      .rows = args.rows,
                      .scale = args.scale,
                      .soft_cap = args.soft_cap,
                      .num_q_heads = static_cast<int32_t>(heads),
                      .group_size = args.group_size,
                      .group_offset = args.group_offset,
                      .window = args.window,
                      .sinks = args.sinks};
  const dim3 grid(static_cast<uint32_t>(tokens), static_cast<uint32_t>(heads));
  const auto handle = static_cast<cudaStream_t>(stream.handle);
  const auto launch = [&]<typename T>(T) {
    return WithFloatType(args.cache.dtype, [&]<typename TCache>(TCache) {
      SimpleAttentionKernel<T>
          <<<grid, 32 * kWarps, 0, handle>>>(params, PagedCache<TCache>(args.cache));
    });
  };
  const bool known = args.out.dtype == DType::kF32 ? launch(float{}) : launch(__nv_bfloat16{});
  CHECK(known) << "not a cache type: " << Info(args.cache.dtype).name;
  CUDA_CHECK_LAUNCH(stream, "simple_attention", tokens, heads, args.cache.head_dim);
}

}  // namespace hayate::ops::sm90
