#pragma once
// One compiled tiling as an entry of a table.

#include "ops/matmul/sm90/fitted_kernel.cuh"
#include "tensor/cuda/check.h"

namespace hayate::ops::sm90 {

template <typename C>
void LaunchFitted(const Stream& stream, const FittedParams& params, int blocks, bool w_changes) {
  // Of the current device, so not once a process.
  CUDA_CHECK(stream.device,
             cudaFuncSetAttribute(FittedKernel<C>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                  C::kSharedBytes));
  cudaLaunchAttribute attributes[2] = {};
  attributes[0].id = cudaLaunchAttributeClusterDimension;
  attributes[0].val.clusterDim = {C::kClusterBlocks, 1, 1};
  attributes[1].id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attributes[1].val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(blocks));
  config.blockDim = dim3(C::kThreads);
  config.dynamicSmemBytes = C::kSharedBytes;
  config.stream = static_cast<cudaStream_t>(stream.handle);
  config.attrs = attributes;
  config.numAttrs = w_changes ? 1 : 2;
  CUDA_CHECK(stream.device, cudaLaunchKernelEx(&config, FittedKernel<C>, params));
  CUDA_CHECK_LAUNCH(stream, "fitted_gemm", params.t, params.n, params.k_blocks);
}

template <Scaling kScaling, int kTileN, int kTileT, int kCluster, int kParts>
constexpr FittedVariant FittedEntry() {
  return {.tiling = {kTileN, kTileT, kCluster, kParts},
          .launch = &LaunchFitted<FittedConfig<kScaling, kTileN, kTileT, kCluster, kParts>>};
}

template <Scaling kScaling>
std::span<const FittedVariant> FittedEntries() {
  static constexpr FittedVariant kVariants[] = {
      FittedEntry<kScaling, 128, 96, 2, 1>(),  FittedEntry<kScaling, 128, 128, 2, 1>(),
      FittedEntry<kScaling, 128, 160, 2, 1>(), FittedEntry<kScaling, 128, 192, 2, 1>(),
      FittedEntry<kScaling, 128, 96, 1, 2>(),  FittedEntry<kScaling, 128, 128, 1, 2>(),
      FittedEntry<kScaling, 128, 160, 1, 2>(), FittedEntry<kScaling, 128, 192, 1, 2>(),
      FittedEntry<kScaling, 128, 224, 1, 2>(), FittedEntry<kScaling, 128, 256, 1, 2>(),
      FittedEntry<kScaling, 192, 96, 2, 1>(),  FittedEntry<kScaling, 192, 128, 2, 1>(),
  };
  return kVariants;
}

}  // namespace hayate::ops::sm90
