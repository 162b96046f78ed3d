// A sum over the ranks, added to the residual, and the norm of the result: a block has whole rows
// (row b, b + grid, …), so it copies them to its slot, meets the same block of the other ranks
// once, and finds everything that a row's norm needs in its own registers.
//
// Bytes per element of bf16 rows: 2 to the slot, 2 · ranks from the slots, 8 of the residual, 2
// out.

#include <algorithm>

#include "base/check.h"
#include "comm/cuda/peer_exchange.cuh"

namespace hayate::comm::cuda {
namespace {

constexpr int kMaxUnits = 4;  // of 16 bytes, that a thread holds of a row

// Σ over the threads of the block.
__device__ __forceinline__ float BlockSum(float x) {
  __shared__ float sums[kThreads / 32];
  for (int offset = 16; offset > 0; offset /= 2) x += __shfl_xor_sync(~0u, x, offset);
  __syncthreads();  // the sums of the row before were read
  if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = x;
  __syncthreads();
  float total = 0.0f;
  for (const float sum : sums) total += sum;
  return total;
}

template <typename T>
struct Params {
  Peers peers;
  float* residual;
  const uint4* part;
  uint4* out;
  const float* weight;
  float eps;
  int rows, columns;
};

template <typename T, int kUnits>
__device__ __forceinline__ void NormRow(const Params<T>& p, uint32_t epoch, int row) {
  constexpr int kElements = 16 / sizeof(T);
  const int units = p.columns / kElements;
  float values[kUnits][kElements] = {};
  float squares = 0.0f;
#pragma unroll
  for (int i = 0; i < kUnits; ++i) {
    const int unit = i * kThreads + static_cast<int>(threadIdx.x);
    if (unit >= units) break;
    const int64_t at = int64_t{row} * units + unit;
    for (int r = 0; r < p.peers.size; ++r) {
      AddTo(values[i], LoadPeer(SlotOf(p.peers, r, epoch) + at), T());
    }
    float* residual = p.residual + at * kElements;
#pragma unroll
    for (int j = 0; j < kElements; j += 4) {
      float4 old = *reinterpret_cast<const float4*>(residual + j);
      old.x += values[i][j], old.y += values[i][j + 1];
      old.z += values[i][j + 2], old.w += values[i][j + 3];
      *reinterpret_cast<float4*>(residual + j) = old;
      values[i][j] = old.x, values[i][j + 1] = old.y;
      values[i][j + 2] = old.z, values[i][j + 3] = old.w;
    }
#pragma unroll
    for (const float value : values[i]) squares = fmaf(value, value, squares);
  }
  const float scale = rsqrtf(BlockSum(squares) / static_cast<float>(p.columns) + p.eps);
#pragma unroll
  for (int i = 0; i < kUnits; ++i) {
    const int unit = i * kThreads + static_cast<int>(threadIdx.x);
    if (unit >= units) break;
#pragma unroll
    for (int j = 0; j < kElements; ++j) values[i][j] *= scale * p.weight[unit * kElements + j];
    p.out[int64_t{row} * units + unit] = Pack(values[i], T());
  }
}

template <typename T, int kUnits>
__global__ void __launch_bounds__(kThreads) SumNormKernel(const __grid_constant__ Params<T> p) {
  WaitForPriorLaunches();
  PeerMemory* own = p.peers.memory[p.peers.rank];
  const uint32_t epoch = own->epoch + 1;
  const int units = p.columns / (16 / static_cast<int>(sizeof(T)));
  uint4* slot = SlotOf(p.peers, p.peers.rank, epoch);
  for (int row = static_cast<int>(blockIdx.x); row < p.rows; row += gridDim.x) {
    for (int unit = static_cast<int>(threadIdx.x); unit < units; unit += kThreads) {
      slot[int64_t{row} * units + unit] = p.part[int64_t{row} * units + unit];
    }
  }
  Meet(p.peers, 0, epoch);
  AllowNextLaunch();
  for (int row = static_cast<int>(blockIdx.x); row < p.rows; row += gridDim.x) {
    NormRow<T, kUnits>(p, epoch, row);
  }
  Finish(own, epoch);
}

template <typename T>
using Kernel = void (*)(Params<T>);

template <typename T>
Kernel<T> KernelFor(int64_t columns) {
  const int64_t units = columns * static_cast<int64_t>(sizeof(T)) / 16;
  if (units <= kThreads) return SumNormKernel<T, 1>;
  if (units <= 2 * kThreads) return SumNormKernel<T, 2>;
  return SumNormKernel<T, kMaxUnits>;
}

template <typename T>
void Launch(Stream stream, const Peers& peers, const SumNormArgs& args) {
  const int64_t rows = args.part.rows(), columns = args.part.cols();
  const Params<T> params = {.peers = peers,
                            .residual = args.residual.as<float>(),
                            .part = reinterpret_cast<const uint4*>(args.part.data),
                            .out = reinterpret_cast<uint4*>(args.out.data),
                            .weight = args.weight,
                            .eps = args.eps,
                            .rows = static_cast<int>(rows),
                            .columns = static_cast<int>(columns)};
  const auto blocks = static_cast<unsigned>(std::min<int64_t>(rows, peers.max_blocks));
  LaunchDependent(stream, KernelFor<T>(columns), blocks, kThreads, 0, params);
}

template <typename T>
void Load(Device* device) {
  cudaFuncAttributes attributes;
  for (const Kernel<T> kernel :
       {SumNormKernel<T, 1>, SumNormKernel<T, 2>, SumNormKernel<T, kMaxUnits>}) {
    CUDA_CHECK(device, cudaFuncGetAttributes(&attributes, kernel));
  }
}

}  // namespace

void LoadSumNormKernels(Device* device) {
  Load<float>(device);
  Load<__nv_bfloat16>(device);
}

bool CanSumNorm(DType dtype, int64_t rows, int64_t columns) {
  const int64_t row_bytes = columns * Info(dtype).block_bytes;
  return (dtype == DType::kBF16 || dtype == DType::kF32) && rows > 0 && row_bytes % 16 == 0 &&
         row_bytes <= int64_t{kMaxUnits} * kThreads * 16 && rows * row_bytes <= kMaxPeerBytes;
}

void PeerSumNorm(Stream stream, const Peers& peers, const SumNormArgs& args) {
  DCHECK(CanSumNorm(args.part.dtype, args.part.rows(), args.part.cols()));
  CHECK(args.residual.dtype == DType::kF32 && args.out.dtype == args.part.dtype);
  if (args.part.dtype == DType::kBF16) {
    Launch<__nv_bfloat16>(stream, peers, args);
  } else {
    Launch<float>(stream, peers, args);
  }
  CUDA_CHECK_LAUNCH(stream, "peer_sum_norm", args.part.rows(), args.part.cols());
}

}  // namespace hayate::comm::cuda
