#pragma once
// Launches a kernel so that it may start before the launches ahead of it in the stream have ended
// (programmatic dependent launch): its blocks are placed and its prologue runs while they drain.
// The kernel must call WaitForPriorLaunches (launch.cuh) in every block.

#include <cuda_runtime.h>

#include "tensor/cuda/check.h"

namespace hayate::ops::sm90 {

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

}  // namespace hayate::ops::sm90
