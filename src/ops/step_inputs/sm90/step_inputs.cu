#include "ops/step_inputs/sm90/step_inputs.h"

#include <algorithm>

#include "tensor/cuda/check.h"

namespace hayate::ops::sm90 {
namespace {

constexpr int kThreads = 256;

__global__ void StepInputsKernel(const __grid_constant__ StepInputsArgs args) {
  const int32_t i = static_cast<int32_t>(blockIdx.x) * kThreads + static_cast<int32_t>(threadIdx.x);
  if (i < args.num_entries) {
    const PageEntry entry = args.entries[i];
    args.tables[entry.table][entry.index] = entry.page;
  }
  if (i < args.num_tokens && args.late_slots[i] >= 0) {
    args.token_ids[i] = args.last_tokens[args.late_slots[i]];
  }
}

}  // namespace

void PrepareStepInputs(Stream stream, const StepInputsArgs& args) {
  const int32_t count = std::max(args.num_entries, args.num_tokens);
  if (count == 0) return;
  const int blocks = (count + kThreads - 1) / kThreads;
  StepInputsKernel<<<blocks, kThreads, 0, static_cast<cudaStream_t>(stream.handle)>>>(args);
  CUDA_CHECK_LAUNCH(stream, "step_inputs", args.num_entries, args.num_tokens);
}

}  // namespace hayate::ops::sm90
