// Norm, rotation and the append to the cache: a warp takes one head of a token, or several where
// there are tokens enough.
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
constexpr int kTurnFeatures = 4 * 32;
// More blocks than the chip holds at a time would each wait for their loads in turn: a warp then
// takes several heads, whose loads are under way together. As few as let all blocks be there at
// once: smaller blocks make way for those of the attention behind them sooner.
constexpr int kSomeHeads = 3, kManyHeads = 6;
constexpr int64_t kResidentBlocks = 132 * 8;
// From so many rows of decode on this launch does not overlap the ones before it. The loads in
// flight of the attention behind it want a large first-level cache; products leave a small one
// behind beside their shared memory, and that division changes only on a multiprocessor that has
// drained. Products of cuBLASLt have ended by themselves, and cost nothing here.
constexpr int32_t kDrainRows = 16;

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

// By how much the four features of lane position p turn, in every head of a token.
struct Angles {
  float2 cos, sin;
};
__device__ Angles AnglesAt(const Params& params, int32_t token, int32_t p) {
  const int64_t row = params.rope_positions != nullptr ? params.rope_positions[token] : token;
  const float* cos_row = params.cos_sin + row * params.rotary_dim;
  return {*reinterpret_cast<const float2*>(cos_row + p / 2),
          *reinterpret_cast<const float2*>(cos_row + params.rotary_dim / 2 + p / 2)};
}

__device__ void Turn(const Params& params, const Angles& angles, float (&x)[4]) {
  if (params.interleaved) {
    Rotate(angles.cos.x, angles.sin.x, &x[0], &x[1]);
    Rotate(angles.cos.y, angles.sin.y, &x[2], &x[3]);
  } else {
    Rotate(angles.cos.x, angles.sin.x, &x[0], &x[2]);
    Rotate(angles.cos.y, angles.sin.y, &x[1], &x[3]);
  }
}

// A warp's heads of one token. Heads are numbered q, then k, then v.
template <typename T, typename TCache, int kHeads, int kTurns>
class TokenHeads {
 public:
  __device__ TokenHeads(const Params& params, int32_t token)
      : params_(params),
        token_(token),
        first_(static_cast<int32_t>(blockIdx.y * kWarps * kHeads + threadIdx.x / 32)) {}

  // Whether any of them goes to the cache.
  __device__ bool HasEntries() const {
    return Head(kHeads - 1) >= params_.num_q_heads && first_ < NumHeads();
  }

  __device__ void Read() {
#pragma unroll
    for (int turn = 0; turn < kTurns; ++turn) {
      const int32_t p = Position(turn);
      if (p >= params_.head_dim) break;
      const Quad quad = QuadAt(params_, p);
      if (Rotates() && quad.turns) angles_[turn] = AnglesAt(params_, token_, p);
#pragma unroll
      for (int i = 0; i < kHeads; ++i) {
        if (Head(i) < NumHeads()) Load(In(Head(i)), quad, x_[i][turn]);
      }
    }
  }

  // `position` of the token lies in `page`; a negative page takes nothing.
  __device__ void Finish(const PagedCache<TCache>& cache, int32_t page, int32_t position) {
#pragma unroll
    for (int i = 0; i < kHeads; ++i) {
      const int32_t head = Head(i), entry = head - params_.num_q_heads;
      if (head >= NumHeads()) return;
      const bool is_query = entry < 0, is_value = entry >= params_.num_kv_heads;
      if (!is_value) Norm(is_query ? params_.q_norm : params_.k_norm, x_[i]);
      if (is_query) {
        Write(i, Queries(head), true);
      } else if (page >= 0) {
        Write(i, cache.Keys(page, entry) + int64_t{position % cache.page_tokens} * params_.head_dim,
              !is_value);
      }
    }
  }

 private:
  static __device__ int32_t Position(int turn) {
    return 4 * (static_cast<int32_t>(threadIdx.x) % 32 + 32 * turn);
  }
  __device__ int32_t Head(int i) const { return first_ + i * kWarps; }
  __device__ int32_t NumHeads() const { return params_.num_q_heads + 2 * params_.num_kv_heads; }
  __device__ bool Rotates() const { return params_.cos_sin != nullptr; }
  __device__ T* Queries(int32_t head) const {
    return static_cast<T*>(params_.q) + token_ * params_.q_row_stride +
           int64_t{head} * params_.head_dim;
  }
  __device__ const T* In(int32_t head) const {
    const int32_t entry = head - params_.num_q_heads;
    if (entry < 0) return Queries(head);
    if (entry < params_.num_kv_heads) {
      return static_cast<const T*>(params_.k) + token_ * params_.k_row_stride +
             int64_t{entry} * params_.head_dim;
    }
    return static_cast<const T*>(params_.v) + token_ * params_.v_row_stride +
           int64_t{entry - params_.num_kv_heads} * params_.head_dim;
  }

  // Where there is a norm.
  __device__ void Norm(const float* norm, float (&x)[kTurns][4]) const {
    if (norm == nullptr) return;
    float squares = 0.0f;
#pragma unroll
    for (int turn = 0; turn < kTurns; ++turn) {
      if (Position(turn) >= params_.head_dim) break;
#pragma unroll
      for (int j = 0; j < 4; ++j) squares += x[turn][j] * x[turn][j];
    }
    const float scale =
        rsqrtf(WarpSum(squares) / static_cast<float>(params_.head_dim) + params_.norm_eps);
#pragma unroll
    for (int turn = 0; turn < kTurns; ++turn) {
      const int32_t p = Position(turn);
      if (p >= params_.head_dim) break;
      float weight[4];
      Load(norm, QuadAt(params_, p), weight);
#pragma unroll
      for (int j = 0; j < 4; ++j) x[turn][j] *= scale * weight[j];
    }
  }

  template <typename TOut>
  __device__ void Write(int i, TOut* out, bool turns) {
#pragma unroll
    for (int turn = 0; turn < kTurns; ++turn) {
      const int32_t p = Position(turn);
      if (p >= params_.head_dim) break;
      const Quad quad = QuadAt(params_, p);
      if (turns && Rotates() && quad.turns) Turn(params_, angles_[turn], x_[i][turn]);
      Store(out, quad, x_[i][turn]);
    }
  }

  const Params& params_;
  const int32_t token_, first_;
  Angles angles_[kTurns];
  float x_[kHeads][kTurns][4];
};

// Grid (T, ⌈(Hq + 2·Hkv) / (kWarps · kHeads)⌉); heads of up to kTurns · 128 features.
template <typename T, typename TCache, int kHeads, int kTurns>
__global__ __launch_bounds__(32 * kWarps) void RopeKvWriteKernel(const Params params,
                                                                 const PagedCache<TCache> cache) {
  AllowNextLaunch();
  const int32_t token = blockIdx.x;
  TokenHeads<T, TCache, kHeads, kTurns> heads(params, token);
  // Rows and their pages were there before the step's first dependent launch.
  int32_t position = 0, page = -1;
  if (heads.HasEntries()) {
    position = params.positions[token];
    page = params.rows.PagesOf(RowOfTokenInWarp(params.rows, token))[position / cache.page_tokens];
  }
  WaitForPriorLaunches();
  heads.Read();
  heads.Finish(cache, page, position);
}

template <typename T, typename TCache, int kHeads>
void LaunchHeads(Stream stream, int64_t tokens, const Params& params, const KvLayerView& view) {
  const int32_t heads = params.num_q_heads + 2 * params.num_kv_heads;
  const dim3 grid(static_cast<uint32_t>(tokens), CeilDiv(heads, kWarps * kHeads));
  const auto kernel = params.head_dim <= kTurnFeatures ? RopeKvWriteKernel<T, TCache, kHeads, 1>
                                                       : RopeKvWriteKernel<T, TCache, kHeads, 2>;
  const PagedCache<TCache> cache(view);
  if (params.rows.plan.num_decode_blocks == 0 || params.rows.num_rows < kDrainRows) {
    return LaunchDependent(stream, kernel, grid, 32 * kWarps, 0, params, cache);
  }
  cudaLaunchConfig_t config = {};
  config.gridDim = grid;
  config.blockDim = dim3(32 * kWarps);
  config.stream = static_cast<cudaStream_t>(stream.handle);
  CUDA_CHECK(stream.device, cudaLaunchKernelEx(&config, kernel, params, cache));
}

void Launch(Stream stream, int64_t tokens, DType activations, const Params& params,
            const KvLayerView& cache) {
  if (tokens == 0) return;
  CHECK_LE(params.head_dim, kMaxHeadDim);
  CHECK_EQ(params.head_dim % 4, 0);
  CHECK_EQ(params.rotary_dim % 4, 0);
  const int32_t heads = params.num_q_heads + 2 * params.num_kv_heads;
  const auto fit = [&](int heads_of_warp) {
    return tokens * CeilDiv(heads, kWarps * heads_of_warp) <= kResidentBlocks;
  };
  const auto launch = [&]<typename T>(T) {
    return WithFloatType(cache.dtype, [&]<typename TCache>(TCache) {
      if (fit(1)) {
        LaunchHeads<T, TCache, 1>(stream, tokens, params, cache);
      } else if (fit(kSomeHeads)) {
        LaunchHeads<T, TCache, kSomeHeads>(stream, tokens, params, cache);
      } else {
        LaunchHeads<T, TCache, kManyHeads>(stream, tokens, params, cache);
      }
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
