#pragma once
// Programmatic dependent launch: a kernel may start before the launches ahead of it in the stream
// have ended; its blocks are placed and its prologue runs while they drain. One block of such a
// kernel at least must call WaitForPriorLaunches, and every block that needs what they write.

#include <cuda_runtime.h>

#include "tensor/cuda/check.h"

namespace hayate::cuda {

template <typename... Params, typename... Args>
void LaunchDependent(const Stream& stream, void (*kernel)(Params...), dim3 grid, dim3 block,
                     size_t shared_bytes, Args... args) {
  cudaLaunchAttribute attribute = {};
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config = {};
  config.gridDim = grid;
  config.blockDim = block;
  config.dynamicSmemBytes = shared_bytes;
  config.stream = static_cast<cudaStream_t>(stream.handle);
  config.attrs = &attribute;
  config.numAttrs = 1;
  CUDA_CHECK(stream.device, cudaLaunchKernelEx(&config, kernel, Params(args)...));
}

// Before it the kernel may touch only memory that no launch of the stream writes (weights, its own
// parameters), and where the launch right before it allows it only after its own wait, or never,
// what launches before that one wrote. It must always be called: the launch after relies on "this
// one finished" meaning "all before finished". Without the launch attribute both calls are no-ops.
__device__ __forceinline__ void WaitForPriorLaunches() {
  asm volatile("griddepcontrol.wait;" ::: "memory");
}
// Lets the next launch begin once every block has said so or ended.
__device__ __forceinline__ void AllowNextLaunch() {
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
}

}  // namespace hayate::cuda
