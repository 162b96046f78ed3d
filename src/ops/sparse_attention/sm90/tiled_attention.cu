// Attention over latent rows by tensor cores: every head of a query reads the same rows, so heads
// are the rows of the matrix instruction.
//
// Computes  out[t, h] = Σ_i softmax_i(scale · q[t, h] · k_i) k_i[: Dv], with the sink in the sum
// Grid      [⌈Hq / 16⌉, splits, T]: a block has 16 heads of a token and a part of its keys
// Tile      32 keys in shared memory, as bf16 whatever the cache holds. Warp w scores keys 8w …
//           8w + 7, weighs heads 4w … 4w + 3, and sums columns [w · Dv / 4, (w + 1) · Dv / 4)
// Order     tiles in order of the keys with a running softmax, then the splits in order
// Traffic   a key's row once per block
// Bound     shared memory and the tensor cores from a few hundred keys on
// Requires  bf16; D a multiple of 16 up to 640; Dv a multiple of 64 up to 512

#include <algorithm>

#include "base/align.h"
#include "base/check.h"
#include "ops/attention/sm90/mma.cuh"
#include "ops/detail/sm90/launch.cuh"
#include "ops/sparse_attention/sm90/keys.cuh"
#include "ops/sparse_attention/sm90/sparse_attention.h"

namespace hayate::ops::sm90 {
namespace {

using X = __nv_bfloat16;

constexpr int kWarps = 4;
constexpr int kThreads = kWarps * 32;
constexpr int kHeads = 16;
constexpr int kKeys = 32;
constexpr int kPad = 8;        // elements: rows fall on different banks
constexpr int kMaxTiles = 16;  // of 8 columns, to a warp
constexpr int kMaxWidth = 640, kMaxValueWidth = kWarps * kMaxTiles * 8;

struct Shared {
  QueryKeys::Key keys[kKeys];
  float scores[kHeads][kKeys + 1];
  X weights[kHeads][kKeys + kPad];
  float correction[kHeads], most[kHeads], total[kHeads];
  // Then q [kHeads, D + kPad] and rows [kKeys, D + kPad].
};

size_t SharedBytes(int width) {
  return AlignUp<size_t>(sizeof(Shared), 16) +
         static_cast<size_t>((kHeads + kKeys) * (width + kPad)) * sizeof(X);
}

// Four 8 × 8 matrices of rows of 16 bytes, transposed on the way.
__device__ __forceinline__ void LoadTransposed(uint32_t (&r)[4], const X* row) {
  const auto address = static_cast<uint32_t>(__cvta_generic_to_shared(row));
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(address)
               : "memory");
}
__device__ __forceinline__ uint32_t PairAt(const X* at) {
  return *reinterpret_cast<const uint32_t*>(at);
}

// Features [8i, 8i + 8) of a row.
__device__ __forceinline__ uint4 LoadRowEight(const RowCache& cache, const RowPlace& place, int i) {
  if (cache.format == RowFormat::kBF16) {
    const uint2* from = reinterpret_cast<const uint2*>(place.data) + 2 * i;
    const uint2 a = from[0], b = from[1];
    return {a.x, a.y, b.x, b.y};
  }
  uint32_t words[4];
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    words[j] = Packed(RowElement(cache, place, 8 * i + 2 * j),
                      RowElement(cache, place, 8 * i + 2 * j + 1), X());
  }
  return {words[0], words[1], words[2], words[3]};
}

class Block {
 public:
  __device__ Block(const SplitSparseAttentionArgs& args, const AttentionCaches& caches,
                   unsigned char* memory)
      : args_(args.attention),
        keys_(args.attention, caches, static_cast<int32_t>(blockIdx.z)),
        shared_(*reinterpret_cast<Shared*>(memory)),
        warp_(threadIdx.x / 32),
        lane_(threadIdx.x % 32),
        num_heads_(args.num_heads),
        width_(args.width),
        value_width_(args.value_width),
        stride_(width_ + kPad),
        first_head_(static_cast<int>(blockIdx.x) * kHeads) {
    q_ = reinterpret_cast<X*>(memory + (sizeof(Shared) + 15) / 16 * 16);
    rows_ = q_ + kHeads * stride_;
  }

  __device__ void Run(const SplitSparseAttentionArgs& args) {
    LoadQueries();
    const int tiles = (keys_.count() + kKeys - 1) / kKeys;
    const int share = (tiles + args.splits - 1) / args.splits;
    const int begin = static_cast<int>(blockIdx.y) * share;
    const int end = min(tiles, begin + share);
    for (int tile = begin; tile < end; ++tile) {
      LoadRows(tile * kKeys);
      Score(tile * kKeys);
      Weigh();
      Sum();
    }
    __syncthreads();
    if (args.splits == 1) {
      WriteOut();
    } else {
      WritePartials(args);
    }
  }

 private:
  __device__ void LoadQueries() {
    const X* q = reinterpret_cast<const X*>(args_.q.data) +
                 (int64_t{blockIdx.z} * num_heads_ + first_head_) * width_;
    const int eights = width_ / 8;
    for (int i = threadIdx.x; i < kHeads * eights; i += kThreads) {
      const int head = i / eights, at = i % eights * 8;
      uint4 value = {};
      if (first_head_ + head < num_heads_) {
        value = *reinterpret_cast<const uint4*>(q + head * width_ + at);
      }
      *reinterpret_cast<uint4*>(q_ + head * stride_ + at) = value;
    }
    if (threadIdx.x < kHeads) {
      shared_.most[threadIdx.x] = -INFINITY;
      shared_.total[threadIdx.x] = 0.0f;
    }
  }

  __device__ void LoadRows(int first) {
    const int count = min(kKeys, keys_.count() - first);
    __syncthreads();
    if (threadIdx.x < count) {
      shared_.keys[threadIdx.x] = keys_.At(first + static_cast<int>(threadIdx.x));
    }
    __syncthreads();
    const int eights = width_ / 8;
    for (int i = threadIdx.x; i < kKeys * eights; i += kThreads) {
      const int key = i / eights, at = i % eights;
      uint4 value = {};
      if (key < count) {
        const QueryKeys::Key& source = shared_.keys[key];
        value = LoadRowEight(keys_.CacheOf(source), source.place, at);
      }
      *reinterpret_cast<uint4*>(rows_ + key * stride_ + at * 8) = value;
    }
    __syncthreads();
  }

  __device__ void Score(int first) {
    const int r = lane_ / 4, j = lane_ % 4;
    float d[4] = {};
    const X* a_row = q_ + r * stride_ + 2 * j;
    const X* b_row = rows_ + (warp_ * 8 + r) * stride_ + 2 * j;
    for (int k = 0; k < width_; k += 16) {
      const uint32_t a[4] = {PairAt(a_row + k), PairAt(a_row + 8 * stride_ + k),
                             PairAt(a_row + k + 8), PairAt(a_row + 8 * stride_ + k + 8)};
      Mma(d, a, PairAt(b_row + k), PairAt(b_row + k + 8), X());
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int key = warp_ * 8 + 2 * j + i % 2;
      const bool visible = first + key < keys_.count();
      shared_.scores[r + i / 2 * 8][key] = visible ? d[i] * args_.scale : -INFINITY;
    }
    __syncthreads();
  }

  // A lane per key. A tile has at least one key, so the maximum is finite.
  __device__ void Weigh() {
#pragma unroll
    for (int i = 0; i < kHeads / kWarps; ++i) {
      const int head = warp_ * (kHeads / kWarps) + i;
      const float score = shared_.scores[head][lane_], before = shared_.most[head];
      const float most = fmaxf(before, WarpMax(score));
      const float weight = __expf(score - most);
      const float sum = WarpSum(weight);
      shared_.weights[head][lane_] = __float2bfloat16_rn(weight);
      __syncwarp();
      if (lane_ != 0) continue;
      const float correction = __expf(before - most);
      shared_.correction[head] = correction;
      shared_.most[head] = most;
      shared_.total[head] = shared_.total[head] * correction + sum;
    }
    __syncthreads();
  }

  __device__ void Sum() {
    const int r = lane_ / 4, j = lane_ % 4;
    const float low = shared_.correction[r], high = shared_.correction[r + 8];
    const int tiles = value_width_ / (kWarps * 8);  // even
    const int column = warp_ * tiles * 8;
#pragma unroll
    for (int i = 0; i < kMaxTiles; ++i) {
      sums_[i][0] *= low;
      sums_[i][1] *= low;
      sums_[i][2] *= high;
      sums_[i][3] *= high;
    }
#pragma unroll
    for (int k = 0; k < kKeys; k += 16) {
      const X* p = &shared_.weights[r][k + 2 * j];
      const X* p8 = &shared_.weights[r + 8][k + 2 * j];
      const uint32_t a[4] = {PairAt(p), PairAt(p8), PairAt(p + 8), PairAt(p8 + 8)};
      const X* from = rows_ + (k + lane_ % 16) * stride_ + column + lane_ / 16 * 8;
#pragma unroll
      for (int i = 0; i < kMaxTiles; i += 2) {
        if (i >= tiles) break;
        uint32_t b[4];
        LoadTransposed(b, from + i * 8);
        Mma(sums_[i], a, b[0], b[1], X());
        Mma(sums_[i + 1], a, b[2], b[3], X());
      }
    }
  }

  // Calls visit(head of the block, column, value) for what the lane summed.
  template <typename Visit>
  __device__ void VisitSums(const Visit& visit) const {
    const int r = lane_ / 4, j = lane_ % 4;
    const int tiles = value_width_ / (kWarps * 8);
#pragma unroll
    for (int i = 0; i < kMaxTiles; ++i) {
      if (i >= tiles) break;
#pragma unroll
      for (int q = 0; q < 4; ++q) {
        const int head = r + q / 2 * 8;
        if (first_head_ + head >= num_heads_) continue;
        visit(head, (warp_ * tiles + i) * 8 + 2 * j + q % 2, sums_[i][q]);
      }
    }
  }
  __device__ int64_t RowOf(int head) const {
    return int64_t{blockIdx.z} * num_heads_ + first_head_ + head;
  }

  __device__ void WriteOut() const {
    X* out = reinterpret_cast<X*>(args_.out.data);
    VisitSums([&](int head, int column, float sum) {
      float total = shared_.total[head];
      if (args_.sinks != nullptr) {
        total += __expf(args_.sinks[first_head_ + head] - shared_.most[head]);
      }
      out[RowOf(head) * value_width_ + column] =
          __float2bfloat16_rn(total == 0.0f ? 0.0f : sum / total);
    });
  }

  __device__ void WritePartials(const SplitSparseAttentionArgs& args) const {
    const int64_t row_floats = value_width_ + 2;
    const auto at = [&](int head) {
      return args.partials + (RowOf(head) * args.splits + blockIdx.y) * row_floats;
    };
    VisitSums([&](int head, int column, float sum) { at(head)[column] = sum; });
    const int head = threadIdx.x;
    if (head >= kHeads || first_head_ + head >= num_heads_) return;
    at(head)[value_width_] = shared_.most[head];
    at(head)[value_width_ + 1] = shared_.total[head];
  }

  const SparseAttentionArgs& args_;
  const QueryKeys keys_;
  Shared& shared_;
  const int warp_, lane_;
  const int num_heads_, width_, value_width_, stride_, first_head_;
  X* q_;
  X* rows_;
  float sums_[kMaxTiles][4] = {};
};

__global__ void __launch_bounds__(kThreads)
    TiledKernel(const __grid_constant__ SplitSparseAttentionArgs args,
                const __grid_constant__ AttentionCaches caches) {
  WaitForPriorLaunches();
  AllowNextLaunch();
  extern __shared__ __align__(16) unsigned char memory[];
  Block(args, caches, memory).Run(args);
}

// A block per head of a token.
__global__ void __launch_bounds__(kThreads)
    JoinKernel(X* out, const float* partials, const float* sinks, int num_heads, int splits,
               int value_width) {
  WaitForPriorLaunches();
  AllowNextLaunch();
  const int64_t row = blockIdx.x;
  const float* parts = partials + row * splits * (value_width + 2);
  const auto part = [&](int split) { return parts + int64_t{split} * (value_width + 2); };
  float most = -INFINITY;
  for (int s = 0; s < splits; ++s) most = fmaxf(most, part(s)[value_width]);
  float total = 0.0f;
  for (int s = 0; s < splits; ++s) {
    if (part(s)[value_width + 1] == 0.0f) continue;  // without keys
    total += part(s)[value_width + 1] * __expf(part(s)[value_width] - most);
  }
  if (sinks != nullptr) total += __expf(sinks[row % num_heads] - most);
  for (int c = threadIdx.x; c < value_width; c += kThreads) {
    float sum = 0.0f;
    for (int s = 0; s < splits; ++s) {
      if (part(s)[value_width + 1] == 0.0f) continue;
      sum += part(s)[c] * __expf(part(s)[value_width] - most);
    }
    out[row * value_width + c] = __float2bfloat16_rn(total == 0.0f ? 0.0f : sum / total);
  }
}

}  // namespace

bool HasTiledAttention(const SparseAttentionArgs& args) {
  const int64_t width = args.q.shape[2], value_width = args.out.shape[2];
  return args.q.dtype == DType::kBF16 && width % 16 == 0 && width <= kMaxWidth &&
         value_width % 64 == 0 && value_width <= std::min<int64_t>(width, kMaxValueWidth);
}

void TiledSparseAttention(Stream stream, const SplitSparseAttentionArgs& args) {
  const SparseAttentionArgs& attention = args.attention;
  const int64_t tokens = attention.q.shape[0], heads = attention.q.shape[1];
  if (tokens == 0 || heads == 0) return;
  const auto value_width = static_cast<int>(attention.out.shape[2]);
  const size_t shared = SharedBytes(static_cast<int>(attention.q.shape[2]));
  CUDA_CHECK(stream.device,
             cudaFuncSetAttribute(TiledKernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                  static_cast<int>(shared)));
  const dim3 grid(static_cast<unsigned>(CeilDiv<int64_t>(heads, kHeads)),
                  static_cast<unsigned>(args.splits), static_cast<unsigned>(tokens));
  LaunchDependent(stream, TiledKernel, grid, kThreads, shared, args, AttentionCaches(attention));
  if (args.splits > 1) {
    LaunchDependent(stream, JoinKernel, static_cast<unsigned>(tokens * heads), kThreads, 0,
                    reinterpret_cast<X*>(attention.out.data), args.partials, attention.sinks,
                    static_cast<int>(heads), args.splits, value_width);
  }
  CUDA_CHECK_LAUNCH(stream, "tiled_sparse_attention", tokens, heads, attention.q.shape[2]);
}

}  // namespace hayate::ops::sm90
