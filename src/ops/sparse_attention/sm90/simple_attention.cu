// Attention over latent rows for any shape: the exact mode, and what tensor cores do not suit.
// Grid    a block per head of a token
// Order   keys in blocks of kBlockKeys with a running softmax; a key's product by lanes and halving
// Bound   loads of single features

#include "base/check.h"
#include "ops/detail/sm90/launch.cuh"
#include "ops/sparse_attention/sm90/keys.cuh"
#include "ops/sparse_attention/sm90/sparse_attention.h"

namespace hayate::ops::sm90 {
namespace {

constexpr int kThreads = 128;
constexpr int kWarps = kThreads / 32;
constexpr int kBlockKeys = 32;
constexpr int kMaxColumns = 8;  // of a value, to a thread

template <typename X>
__global__ void __launch_bounds__(kThreads)
    SimpleKernel(const __grid_constant__ SparseAttentionArgs args,
                 const __grid_constant__ AttentionCaches caches, X* out, const X* q, int heads,
                 int width, int value_width) {
  WaitForPriorLaunches();
  AllowNextLaunch();
  extern __shared__ float query[];
  __shared__ float weights[kBlockKeys];
  __shared__ QueryKeys::Key keys[kBlockKeys];
  const int head = blockIdx.x, warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const auto t = static_cast<int32_t>(blockIdx.y);
  const int64_t row = int64_t{t} * heads + head;
  const QueryKeys all(args, caches, t);
  for (int i = threadIdx.x; i < width; i += kThreads) query[i] = ToFloat(q[row * width + i]);
  float sums[kMaxColumns] = {}, most = -INFINITY, total = 0.0f;
  for (int begin = 0; begin < all.count(); begin += kBlockKeys) {
    const int count = min(kBlockKeys, all.count() - begin);
    __syncthreads();
    if (threadIdx.x < count) keys[threadIdx.x] = all.At(begin + static_cast<int>(threadIdx.x));
    __syncthreads();
    for (int i = warp; i < count; i += kWarps) {
      const RowCache& cache = all.CacheOf(keys[i]);
      float dot = 0.0f;
      for (int f = lane; f < width; f += 32) {
        dot = fmaf(query[f], RowElement(cache, keys[i].place, f), dot);
      }
      dot = WarpSum(dot);
      if (lane == 0) weights[i] = dot * args.scale;
    }
    __syncthreads();
    float highest = most;
    for (int i = 0; i < count; ++i) highest = fmaxf(highest, weights[i]);
    const float correction = most == highest ? 1.0f : expf(most - highest);
    most = highest;
    total *= correction;
#pragma unroll
    for (int c = 0; c < kMaxColumns; ++c) sums[c] *= correction;
    for (int i = 0; i < count; ++i) {
      const RowCache& cache = all.CacheOf(keys[i]);
      const float weight = expf(weights[i] - most);
      total += weight;
#pragma unroll
      for (int c = 0; c < kMaxColumns; ++c) {
        const int f = c * kThreads + static_cast<int>(threadIdx.x);
        if (f >= value_width) break;
        sums[c] = fmaf(weight, RowElement(cache, keys[i].place, f), sums[c]);
      }
    }
  }
  if (args.sinks != nullptr) total += expf(args.sinks[head] - most);
#pragma unroll
  for (int c = 0; c < kMaxColumns; ++c) {
    const int f = c * kThreads + static_cast<int>(threadIdx.x);
    if (f >= value_width) break;
    FromFloat(all.count() == 0 ? 0.0f : sums[c] / total, out + row * value_width + f);
  }
}

template <typename X>
void Launch(const Stream& stream, const SparseAttentionArgs& args) {
  const int64_t tokens = args.q.shape[0], heads = args.q.shape[1], width = args.q.shape[2];
  const int64_t value_width = args.out.shape[2];
  CHECK_LE(value_width, kThreads * kMaxColumns);
  const dim3 grid(static_cast<unsigned>(heads), static_cast<unsigned>(tokens));
  LaunchDependent(stream, SimpleKernel<X>, grid, kThreads,
                  static_cast<size_t>(width) * sizeof(float), args, AttentionCaches(args),
                  reinterpret_cast<X*>(args.out.data), reinterpret_cast<const X*>(args.q.data),
                  static_cast<int>(heads), static_cast<int>(width), static_cast<int>(value_width));
}

}  // namespace

void SimpleSparseAttention(Stream stream, const SparseAttentionArgs& args) {
  if (args.q.shape.num_elements() == 0) return;
  if (args.q.dtype == DType::kBF16) {
    Launch<__nv_bfloat16>(stream, args);
  } else {
    CHECK(args.q.dtype == DType::kF32) << Info(args.q.dtype).name;
    Launch<float>(stream, args);
  }
  CUDA_CHECK_LAUNCH(stream, "simple_sparse_attention", args.q.shape[0], args.q.shape[1],
                    args.q.shape[2]);
}

}  // namespace hayate::ops::sm90
