#pragma once
// Shared memory of the other blocks of a cluster, and launches of clusters.

#include <cuda_runtime.h>

#include <cstdint>

#include "tensor/cuda/check.h"

namespace hayate::ops::sm90 {

// Where block `rank` of the cluster has what lies at `pointer`, an address of this block's shared
// memory. Reads must follow a ClusterSync after the write, and no block may end before the last.
template <typename T>
__device__ __forceinline__ T* InBlock(T* pointer, uint32_t rank) {
  uint64_t address;
  asm volatile("mapa.u64 %0, %1, %2;"
               : "=l"(address)
               : "l"(reinterpret_cast<uint64_t>(pointer)), "r"(rank));
  return reinterpret_cast<T*>(address);
}

// `clusters` clusters of `blocks` blocks in a row; dependent as by LaunchDependent.
template <typename... Params, typename... Args>
void LaunchClusters(const Stream& stream, void (*kernel)(Params...), unsigned clusters,
                    unsigned blocks, unsigned threads, size_t shared_bytes, Args... args) {
  cudaLaunchAttribute attributes[2] = {};
  attributes[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attributes[0].val.programmaticStreamSerializationAllowed = 1;
  attributes[1].id = cudaLaunchAttributeClusterDimension;
  attributes[1].val.clusterDim.x = blocks;
  attributes[1].val.clusterDim.y = 1;
  attributes[1].val.clusterDim.z = 1;
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(clusters * blocks);
  config.blockDim = dim3(threads);
  config.dynamicSmemBytes = shared_bytes;
  config.stream = static_cast<cudaStream_t>(stream.handle);
  config.attrs = attributes;
  config.numAttrs = 2;
  CUDA_CHECK(stream.device, cudaLaunchKernelEx(&config, kernel, Params(args)...));
}

}  // namespace hayate::ops::sm90
