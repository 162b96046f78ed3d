// Rotation of heads in place, with the norm of each head before it, and the rows of cos and sin.
//
// Rope: a warp per head of a token; the head stays in the warp's registers between the norm and the
// turn. Grid: [tokens · (Hq + Hkv) / warps of a block]. Traffic: the heads read and written once.

#include "ops/rope/sm90/rope.h"

#include "base/align.h"
#include "base/check.h"
#include "ops/detail/sm90/eight.cuh"
#include "ops/detail/sm90/launch.cuh"

namespace hayate::ops::sm90 {
namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / 32;
constexpr int kMaxHeadDim = 256;
constexpr int kLanePairs = kMaxHeadDim / 2 / 32;

// Heads of q or of k.
struct Heads {
  std::byte* data;
  int64_t row_stride;  // elements
  int count;
  const float* norm;  // [D] or null
};

struct RopeParams {
  Heads q, k;
  const int32_t* positions;
  const float* cos_sin;
  int64_t tokens;
  int head_dim;
  int rotary_dim;
  bool halves;
  float norm_eps;
};

// The head's elements as pairs: those that turn together, then the rest two by two.
struct PairIndex {
  int a, b;
};
__device__ __forceinline__ PairIndex PairAt(const RopeParams& p, int pair) {
  const int turning = p.rotary_dim / 2;
  if (p.halves && pair < turning) return {pair, pair + turning};
  return {2 * pair, 2 * pair + 1};
}

template <typename T>
__global__ void __launch_bounds__(kThreads) RopeKernel(const __grid_constant__ RopeParams p) {
  AllowNextLaunch();
  WaitForPriorLaunches();
  const int64_t warp = int64_t{blockIdx.x} * kWarps + threadIdx.x / 32;
  const int lane = threadIdx.x % 32;
  const int heads = p.q.count + p.k.count;
  const int64_t token = warp / heads;
  if (token >= p.tokens) return;
  const int index = static_cast<int>(warp - token * heads);
  const bool is_q = index < p.q.count;
  const Heads& side = is_q ? p.q : p.k;
  T* head = reinterpret_cast<T*>(side.data) + token * side.row_stride +
            int64_t{is_q ? index : index - p.q.count} * p.head_dim;

  const int pairs = p.head_dim / 2;
  float a[kLanePairs], b[kLanePairs], squares = 0.0f;
#pragma unroll
  for (int i = 0; i < kLanePairs; ++i) {
    const int pair = lane + 32 * i;
    if (pair >= pairs) continue;
    const PairIndex at = PairAt(p, pair);
    a[i] = ToFloat(head[at.a]);
    b[i] = ToFloat(head[at.b]);
    squares += a[i] * a[i] + b[i] * b[i];
  }
  if (side.norm != nullptr) {
    const float scale =
        1.0f / sqrtf(WarpSum(squares) / static_cast<float>(p.head_dim) + p.norm_eps);
#pragma unroll
    for (int i = 0; i < kLanePairs; ++i) {
      const int pair = lane + 32 * i;
      if (pair >= pairs) continue;
      const PairIndex at = PairAt(p, pair);
      a[i] *= scale * side.norm[at.a];
      b[i] *= scale * side.norm[at.b];
    }
  }
  const int64_t row = p.positions != nullptr ? p.positions[token] : token;
  const float* cos = p.cos_sin + row * p.rotary_dim;
  const float* sin = cos + p.rotary_dim / 2;
#pragma unroll
  for (int i = 0; i < kLanePairs; ++i) {
    const int pair = lane + 32 * i;
    if (pair >= pairs) continue;
    const PairIndex at = PairAt(p, pair);
    const bool turns = pair < p.rotary_dim / 2;
    const float c = turns ? cos[pair] : 1.0f, s = turns ? sin[pair] : 0.0f;
    FromFloat(a[i] * c - b[i] * s, head + at.a);
    FromFloat(b[i] * c + a[i] * s, head + at.b);
  }
}

// A thread per pair. sincospi reduces its argument exactly, so the only error is that of angle / π
// in double: below 1e-11 at position 2²⁰. Launches of a layer read these rows before they wait for
// the ones ahead of them: no launch begins before all blocks have left, and what they wrote is
// there then.
__global__ void __launch_bounds__(kThreads)
    RopeRowsKernel(float* out, const int32_t* positions, const float* inv_freq,
                   float attention_factor, int pairs, int64_t count) {
  WaitForPriorLaunches();
  const int64_t at = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (at >= count) return;
  const int64_t token = at / pairs;
  const int pair = static_cast<int>(at - token * pairs);
  constexpr double kInversePi = 0.318309886183790671538;
  const double angle = double{inv_freq[pair]} * positions[token];
  double sin, cos;
  sincospi(angle * kInversePi, &sin, &cos);
  float* row = out + token * 2 * pairs;
  row[pair] = static_cast<float>(cos * attention_factor);
  row[pairs + pair] = static_cast<float>(sin * attention_factor);
  __threadfence();
}

}  // namespace

void Rope(Stream stream, const RopeArgs& args) {
  const int head_dim = static_cast<int>(args.q.cols());
  CHECK(head_dim <= kMaxHeadDim && head_dim % 2 == 0) << "head_dim " << head_dim;
  DCHECK(args.q.dtype == args.k.dtype);
  const RopeParams params = {
      .q = {args.q.data, args.q_row_stride, static_cast<int>(args.q.shape[1]), args.q_norm},
      .k = {args.k.data, args.k_row_stride, static_cast<int>(args.k.shape[1]), args.k_norm},
      .positions = args.positions,
      .cos_sin = args.cos_sin,
      .tokens = args.q.shape[0],
      .head_dim = head_dim,
      .rotary_dim = args.rotary_dim,
      .halves = args.pairing == RopePairing::kHalves,
      .norm_eps = args.norm_eps};
  const int64_t warps = params.tokens * (params.q.count + params.k.count);
  if (warps == 0) return;
  const dim3 grid(static_cast<unsigned>(CeilDiv(warps, int64_t{kWarps})));
  CHECK(args.q.dtype == DType::kBF16 || args.q.dtype == DType::kF32) << Info(args.q.dtype).name;
  const auto kernel = args.q.dtype == DType::kBF16 ? RopeKernel<__nv_bfloat16> : RopeKernel<float>;
  LaunchDependent(stream, kernel, grid, kThreads, 0, params);
  CUDA_CHECK_LAUNCH(stream, "rope", params.tokens, params.q.count, params.k.count, head_dim);
}

void RopeRows(Stream stream, const RopeRowsArgs& args) {
  const int pairs = static_cast<int>(args.out.cols() / 2);
  const int64_t count = args.out.rows() * pairs;
  if (count == 0) return;
  LaunchDependent(stream, RopeRowsKernel,
                  dim3(static_cast<unsigned>(CeilDiv(count, int64_t{kThreads}))), kThreads, 0,
                  reinterpret_cast<float*>(args.out.data), args.positions, args.inv_freq,
                  args.attention_factor, pairs, count);
  CUDA_CHECK_LAUNCH(stream, "rope_rows", args.out.rows(), args.out.cols());
}

}  // namespace hayate::ops::sm90
