#include "ops/step_inputs/sm90/step_inputs.h"

#include <algorithm>

#include "base/align.h"
#include "tensor/cuda/check.h"

namespace hayate::ops::sm90 {
namespace {

constexpr int kThreads = 256;

// Attention reads lengths and page tables before it waits for the launches ahead of it
// (dependent_launch.cuh): what these two write is there when their blocks have left.
__device__ __forceinline__ void Publish() { __threadfence(); }

__global__ void StepInputsKernel(const __grid_constant__ StepInputsArgs args) {
  const int32_t i = static_cast<int32_t>(blockIdx.x) * kThreads + static_cast<int32_t>(threadIdx.x);
  if (i < args.num_entries) {
    const PageEntry entry = args.entries[i];
    args.tables[entry.table][entry.index] = entry.page;
  }
  if (i < args.num_tokens && args.late_slots[i] >= 0) {
    args.token_ids[i] = args.last_tokens[args.late_slots[i]];
  }
  Publish();
}

__global__ void __launch_bounds__(kThreads)
    FetchKernel(uint4* __restrict__ to, const uint4* __restrict__ from, int64_t count) {
  const int64_t first = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  for (int64_t i = first; i < count; i += int64_t{gridDim.x} * kThreads) {
    uint4 value;
    // The host writes it anew for every other step.
    asm volatile("ld.relaxed.sys.global.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(value.x), "=r"(value.y), "=r"(value.z), "=r"(value.w)
                 : "l"(from + i));
    to[i] = value;
  }
  Publish();
}

}  // namespace

void FetchInputs(Stream stream, void* to, const void* from, int64_t bytes) {
  constexpr int64_t kMaxBlocks = 64;
  const int64_t count = bytes / static_cast<int64_t>(sizeof(uint4));
  if (count == 0) return;
  const auto blocks = static_cast<int>(std::min(CeilDiv<int64_t>(count, kThreads), kMaxBlocks));
  FetchKernel<<<blocks, kThreads, 0, static_cast<cudaStream_t>(stream.handle)>>>(
      static_cast<uint4*>(to), static_cast<const uint4*>(from), count);
  CUDA_CHECK_LAUNCH(stream, "fetch_inputs", bytes);
}

void PrepareStepInputs(Stream stream, const StepInputsArgs& args) {
  const int32_t count = std::max(args.num_entries, args.num_tokens);
  if (count == 0) return;
  const int blocks = (count + kThreads - 1) / kThreads;
  StepInputsKernel<<<blocks, kThreads, 0, static_cast<cudaStream_t>(stream.handle)>>>(args);
  CUDA_CHECK_LAUNCH(stream, "step_inputs", args.num_entries, args.num_tokens);
}

}  // namespace hayate::ops::sm90
