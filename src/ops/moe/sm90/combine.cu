// Adds up a token's experts. Grid: [T, pieces of a row]. Order: that of the choice, then the shared
// expert, in fp32. Traffic: (K + 2) elements per element of the result.

#include "base/align.h"
#include "base/check.h"
#include "ops/detail/sm90/eight.cuh"
#include "ops/detail/sm90/launch.cuh"
#include "ops/moe/sm90/experts.h"

namespace hayate::ops::sm90 {
namespace {

constexpr int kThreads = 256;

struct Params {
  const int32_t* chosen;
  const float* shared_gate;
  int64_t columns;
  int32_t top_k, first, num_experts;
};

__device__ __forceinline__ Eight LoadOne(const float* from) { return {{*from}}; }
__device__ __forceinline__ Eight LoadOne(const __nv_bfloat16* from) { return {{ToFloat(*from)}}; }

template <typename T, int kColumns>
__global__ void __launch_bounds__(kThreads)
    CombineKernel(T* out, const T* results, const T* shared, const __grid_constant__ Params p) {
  WaitForPriorLaunches();
  AllowNextLaunch();
  const int64_t t = blockIdx.x;
  const int64_t column = (static_cast<int64_t>(blockIdx.y) * kThreads + threadIdx.x) * kColumns;
  if (column >= p.columns) return;
  const auto load = [&](const T* row) {
    if constexpr (kColumns == 8) return LoadEight(row + column);
    return LoadOne(row + column);
  };
  Eight sum = {};
  for (int j = 0; j < p.top_k; ++j) {
    const int64_t pair = t * p.top_k + j;
    if (p.chosen != nullptr) {
      const unsigned expert = static_cast<unsigned>(p.chosen[pair] - p.first);
      if (expert >= static_cast<unsigned>(p.num_experts)) continue;
    }
    const Eight value = load(results + pair * p.columns);
#pragma unroll
    for (int i = 0; i < kColumns; ++i) sum.v[i] += value.v[i];
  }
  if (shared != nullptr) {
    const float gate = p.shared_gate == nullptr ? 1.0f : 1.0f / (1.0f + expf(-p.shared_gate[t]));
    const Eight value = load(shared + t * p.columns);
#pragma unroll
    for (int i = 0; i < kColumns; ++i) sum.v[i] = fmaf(gate, value.v[i], sum.v[i]);
  }
  if constexpr (kColumns == 8) {
    StoreEight(out + t * p.columns + column, sum);
  } else {
    FromFloat(sum.v[0], out + t * p.columns + column);
  }
}

template <typename T>
void Launch(const Stream& stream, const AddUpArgs& args) {
  const Params params = {args.chosen, args.shared_gate, args.out.cols(),
                         args.top_k,  args.first,       args.num_experts};
  T* out = reinterpret_cast<T*>(args.out.data);
  const T* results = reinterpret_cast<const T*>(args.results.data);
  const T* shared = reinterpret_cast<const T*>(args.shared.data);
  const auto bits = reinterpret_cast<uintptr_t>(out) | reinterpret_cast<uintptr_t>(results) |
                    reinterpret_cast<uintptr_t>(shared);
  const bool eights = params.columns % 8 == 0 && bits % 16 == 0;
  const int64_t work = eights ? params.columns / 8 : params.columns;
  const dim3 grid(static_cast<unsigned>(args.out.rows()),
                  static_cast<unsigned>(CeilDiv<int64_t>(work, kThreads)));
  LaunchDependent(stream, eights ? CombineKernel<T, 8> : CombineKernel<T, 1>, grid, kThreads, 0,
                  out, results, shared, params);
}

}  // namespace

void AddUpExperts(Stream stream, const AddUpArgs& args) {
  if (args.out.rows() == 0) return;
  if (args.out.dtype == DType::kBF16) {
    Launch<__nv_bfloat16>(stream, args);
  } else {
    CHECK(args.out.dtype == DType::kF32) << Info(args.out.dtype).name;
    Launch<float>(stream, args);
  }
  CUDA_CHECK_LAUNCH(stream, "add_up_experts", args.out.rows(), args.out.cols());
}

}  // namespace hayate::ops::sm90
