// A block per row: norm, rotation, Hadamard transform and quantisation in shared memory. Rows whose
// page is −1 (padding) are dropped. Bound: latency; a step has few rows.

#include "ops/sparse_attention/sm90/row_write.h"

#include "base/align.h"
#include "base/check.h"
#include "ops/attention/sm90/rows.cuh"
#include "ops/detail/sm90/launch.cuh"
#include "ops/sparse_attention/sm90/vector.cuh"

namespace hayate::ops::sm90 {
namespace {

constexpr int kThreads = 128;

template <typename X>
__global__ void __launch_bounds__(kThreads)
    WriteKernel(const __grid_constant__ RowWriteArgs args, const __grid_constant__ RowCache cache) {
  WaitForPriorLaunches();
  AllowNextLaunch();
  extern __shared__ float row[];
  __shared__ float scratch[kThreads / 32];
  const int32_t i = static_cast<int32_t>(blockIdx.x);
  const int width = cache.width, rotary = cache.rotary;
  const X* x = reinterpret_cast<const X*>(args.x.data) + int64_t{i} * width;
  for (int f = threadIdx.x; f < width; f += kThreads) row[f] = ToFloat(x[f]);
  __syncthreads();
  if (args.norm != nullptr) NormVector(row, args.norm_width, args.norm_eps, args.norm, scratch);
  if (args.normed != nullptr) {
    X* normed = reinterpret_cast<X*>(args.normed) + int64_t{i} * width;
    for (int f = threadIdx.x; f < width; f += kThreads) FromFloat(row[f], normed + f);
    __syncthreads();
  }
  const int32_t index = args.index[i];
  if (index < 0) return;
  const int32_t sequence = args.seq == nullptr ? RowOfToken(args.rows, i) : args.seq[i];
  const int32_t page = args.rows.PagesOf(sequence)[index / cache.page_rows];
  if (page < 0) return;
  if (args.cos_sin != nullptr) {
    TurnPairs(row + width - rotary, args.cos_sin + int64_t{i} * rotary, rotary, false);
  }
  if (args.hadamard) HadamardVector(row, width);
  StoreRow(cache, PlaceOf(cache, page, index % cache.page_rows), row);
}

template <typename X>
void Launch(const Stream& stream, const RowWriteArgs& args) {
  LaunchDependent(stream, WriteKernel<X>, static_cast<unsigned>(args.x.rows()), kThreads,
                  static_cast<size_t>(args.cache.width) * sizeof(float), args,
                  RowCache(args.cache));
}

__global__ void __launch_bounds__(kThreads)
    ListKernel(const __grid_constant__ AttentionRows rows, int32_t num_tokens, int32_t* seq) {
  WaitForPriorLaunches();
  AllowNextLaunch();
  const auto t = static_cast<int32_t>(blockIdx.x * kThreads + threadIdx.x);
  if (t < num_tokens) seq[t] = RowOfToken(rows, t);
}

}  // namespace

void ListTokenRows(Stream stream, const AttentionRows& rows, int32_t num_tokens, int32_t* seq) {
  if (num_tokens == 0) return;
  LaunchDependent(stream, ListKernel, static_cast<unsigned>(CeilDiv(num_tokens, kThreads)),
                  kThreads, 0, rows, num_tokens, seq);
  CUDA_CHECK_LAUNCH(stream, "list_token_rows", num_tokens);
}

void WriteRows(Stream stream, const RowWriteArgs& args) {
  DCHECK_EQ(args.x.cols(), args.cache.width);
  if (args.x.rows() == 0) return;
  if (args.x.dtype == DType::kBF16) {
    Launch<__nv_bfloat16>(stream, args);
  } else {
    CHECK(args.x.dtype == DType::kF32) << Info(args.x.dtype).name;
    Launch<float>(stream, args);
  }
  CUDA_CHECK_LAUNCH(stream, "write_rows", args.x.rows(), args.cache.width);
}

}  // namespace hayate::ops::sm90
