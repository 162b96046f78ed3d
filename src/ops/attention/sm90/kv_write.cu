// Norm, rotation and the append to the cache: one warp a head of a token.
//
//   traffic  T · (Hq + 2·Hkv) · D activations read, T · Hq · D written in place, T · 2·Hkv · D
//   cache
//            elements written; cos and sin [T, rotary_dim] f32 from L2
//   bound    memory; at decode (T <= 256) the latency of token → row → page

#include "ops/attention/sm90/launch.h"
#include "ops/attention/sm90/numbers.cuh"
#include "ops/attention/sm90/rows.cuh"
#include "ops/detail/sm90/launch.cuh"
#include "tensor/cuda/check.h"

namespace hayate::ops::sm90 {
namespace {

constexpr int kWarps = 8;
constexpr int kMaxHeadDim = 256;
// Four features a lane and turn: two pairs.
constexpr int kMaxTurns = kMaxHeadDim / 4 / 32;

struct Params {
  void* q;  // elements of the activation type
  const void* k;
  const void* v;
  int64_t q_row_stride, k_row_stride, v_row_stride;  // elements
  int32_t num_q_heads, num_kv_heads, head_dim, rotary_dim;
  bool interleaved;
  const int32_t* rope_positions;  // null: token t has row t
  const float* cos_sin;
  const float* q_norm;
  const float* k_norm;
  float norm_eps;
  const int32_t* positions;
  AttentionRows rows;
};

// The four features of lane position p (a multiple of 4), as two neighbours each. Features past
// rotary_dim do not turn and lie side by side.
struct Quad {
  int32_t first, second;
  bool turns;
};
__device__ Quad QuadAt(const Params& params, int32_t p) {
  if (p >= params.rotary_dim || params.interleaved) return {p, p + 2, p < params.rotary_dim};
  return {p / 2, p / 2 + params.rotary_dim / 2, true};
}

template <typename T>
__device__ void Load(const T* x, const Quad& quad, float (&out)[4]) {
  const Pair<T> first = *reinterpret_cast<const Pair<T>*>(x + quad.first);
  const Pair<T> second = *reinterpret_cast<const Pair<T>*>(x + quad.second);
  out[0] = ToFloat(first.a);
  out[1] = ToFloat(first.b);
  out[2] = ToFloat(second.a);
  out[3] = ToFloat(second.b);
}
template <typename T>
__device__ void Store(T* x, const Quad& quad, const float (&in)[4]) {
  Pair<T> first, second;
  FromFloat(in[0], &first.a);
  FromFloat(in[1], &first.b);
  FromFloat(in[2], &second.a);
  FromFloat(in[3], &second.b);
  *reinterpret_cast<Pair<T>*>(x + quad.first) = first;
  *reinterpret_cast<Pair<T>*>(x + quad.second) = second;
}

__device__ void Rotate(float cos, float sin, float* a, float* b) {
  const float turned = *a * cos - *b * sin;
  *b = *b * cos + *a * sin;
  *a = turned;
}

__device__ void Turn(const Params& params, int32_t token, int32_t p, float (&x)[4]) {
  const int64_t row = params.rope_positions != nullptr ? params.rope_positions[token] : token;
  const float* cos_row = params.cos_sin + row * params.rotary_dim;
  const float2 cos = *reinterpret_cast<const float2*>(cos_row + p / 2);
  const float2 sin = *reinterpret_cast<const float2*>(cos_row + params.rotary_dim / 2 + p / 2);
  if (params.interleaved) {
    Rotate(cos.x, sin.x, &x[0], &x[1]);
    Rotate(cos.y, sin.y, &x[2], &x[3]);
  } else {
    Rotate(cos.x, sin.x, &x[0], &x[2]);
    Rotate(cos.y, sin.y, &x[1], &x[3]);
  }
}

// One head from `in`, normed and turned where asked, to `out`.
template <typename TIn, typename TOut>
__device__ void MoveHead(const Params& params, int32_t token, const TIn* in, const float* norm,
                         bool rope, TOut* out) {
  const int32_t lane = threadIdx.x % 32;
  float x[kMaxTurns][4];
  float squares = 0.0f;
#pragma unroll
  for (int turn = 0; turn < kMaxTurns; ++turn) {
    const int32_t p = 4 * (lane + 32 * turn);
    if (p >= params.head_dim) break;
    Load(in, QuadAt(params, p), x[turn]);
#pragma unroll
    for (int i = 0; i < 4; ++i) squares += x[turn][i] * x[turn][i];
  }
  float scale = 1.0f;
  if (norm != nullptr) {
    scale = rsqrtf(WarpSum(squares) / static_cast<float>(params.head_dim) + params.norm_eps);
  }
#pragma unroll
  for (int turn = 0; turn < kMaxTurns; ++turn) {
    const int32_t p = 4 * (lane + 32 * turn);
    if (p >= params.head_dim) break;
    const Quad quad = QuadAt(params, p);
    if (norm != nullptr) {
      float weight[4];
      Load(norm, quad, weight);
#pragma unroll
      for (int i = 0; i < 4; ++i) x[turn][i] *= scale * weight[i];
    }
    if (rope && quad.turns) Turn(params, token, p, x[turn]);
    Store(out, quad, x[turn]);
  }
}

// Grid (T, ⌈(Hq + 2·Hkv) / kWarps⌉). Heads are numbered q, then k, then v.
template <typename T, typename TCache>
__global__ __launch_bounds__(32 * kWarps) void RopeKvWriteKernel(const Params params,
                                                                 const PagedCache<TCache> cache) {
  AllowNextLaunch();
  const int32_t token = blockIdx.x;
  const int32_t head = blockIdx.y * kWarps + threadIdx.x / 32;
  const int32_t d = params.head_dim;
  const bool rope = params.cos_sin != nullptr;
  const int32_t entry = head - params.num_q_heads;
  const bool is_entry = entry >= 0 && entry < 2 * params.num_kv_heads;
  // Rows and their pages were there before the step's first dependent launch.
  int32_t position = 0, page = -1;
  if (is_entry) {
    position = params.positions[token];
    page = params.rows.PagesOf(RowOfToken(params.rows, token))[position / cache.page_tokens];
  }
  WaitForPriorLaunches();
  if (entry < 0) {
    T* q = static_cast<T*>(params.q) + token * params.q_row_stride + int64_t{head} * d;
    return MoveHead(params, token, q, params.q_norm, rope, q);
  }
  if (page < 0) return;
  TCache* out = cache.Keys(page, entry) + int64_t{position % cache.page_tokens} * d;
  if (entry < params.num_kv_heads) {
    const T* k = static_cast<const T*>(params.k) + token * params.k_row_stride + int64_t{entry} * d;
    MoveHead(params, token, k, params.k_norm, rope, out);
  } else {
    const T* v = static_cast<const T*>(params.v) + token * params.v_row_stride +
                 int64_t{entry - params.num_kv_heads} * d;
    MoveHead(params, token, v, nullptr, false, out);
  }
}

void Launch(Stream stream, int64_t tokens, DType activations, const Params& params,
            const KvLayerView& cache) {
  if (tokens == 0) return;
  CHECK_LE(params.head_dim, kMaxHeadDim);
  CHECK_EQ(params.head_dim % 4, 0);
  CHECK_EQ(params.rotary_dim % 4, 0);
  const int32_t heads = params.num_q_heads + 2 * params.num_kv_heads;
  const dim3 grid(static_cast<uint32_t>(tokens), CeilDiv(heads, kWarps));
  const auto launch = [&]<typename T>(T) {
    return WithFloatType(cache.dtype, [&]<typename TCache>(TCache) {
      LaunchDependent(stream, RopeKvWriteKernel<T, TCache>, grid, 32 * kWarps, 0, params,
                      PagedCache<TCache>(cache));
    });
  };
  const bool known = activations == DType::kF32 ? launch(float{}) : launch(__nv_bfloat16{});
  CHECK(known) << "not a cache type: " << Info(cache.dtype).name;
  CUDA_CHECK_LAUNCH(stream, "rope_kv_write", tokens, heads, params.head_dim);
}

Params WriteParams(const KvWriteArgs& write) {
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
  Params params = WriteParams(args.write);
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
