#pragma once
// How a multiprocessor divides its memory between shared memory and first-level cache. The division
// changes only while no block is there, so a launch that wants another one than the launches around
// it is kept from running beside them: its blocks wait for the last of theirs, or find room for one
// where there should be two. All launches of a layer therefore ask for the one that products need,
// as much shared memory as there is.

#include <cuda_runtime_api.h>

#include "tensor/cuda/check.h"

namespace hayate::ops::sm90 {

// Before each launch: the wish belongs to the kernel on the current device.
template <typename... Params>
void AskForLargestShared(const Stream& stream, void (*kernel)(Params...)) {
  CUDA_CHECK(stream.device,
             cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout,
                                  cudaSharedmemCarveoutMaxShared));
}

}  // namespace hayate::ops::sm90
