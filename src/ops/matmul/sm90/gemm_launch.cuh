#pragma once
// One compiled tiling as an entry of a table.

#include "ops/matmul/sm90/gemm_kernel.cuh"
#include "ops/matmul/sm90/gemm_variants.h"
#include "tensor/cuda/check.h"

namespace hayate::ops::sm90 {

template <typename C>
void LaunchGemm(const Stream& stream, const GemmParams& params, int blocks) {
  // Of the current device, so not once a process.
  CUDA_CHECK(stream.device,
             cudaFuncSetAttribute(GemmKernel<C>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                  C::kSharedBytes));
  cudaLaunchAttribute attributes[2];
  attributes[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attributes[0].val.programmaticStreamSerializationAllowed = 1;
  attributes[1].id = cudaLaunchAttributeClusterDimension;
  attributes[1].val.clusterDim = {C::kCluster, 1, 1};
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(blocks));
  config.blockDim = dim3(C::kThreads);
  config.dynamicSmemBytes = C::kSharedBytes;
  config.stream = static_cast<cudaStream_t>(stream.handle);
  config.attrs = attributes;
  config.numAttrs = C::kCluster > 1 ? 2 : 1;
  CUDA_CHECK(stream.device, cudaLaunchKernelEx(&config, GemmKernel<C>, params));
  CUDA_CHECK_LAUNCH(stream, "gemm", params.t, params.n, params.k_blocks);
}

template <Scaling kScaling, bool kWeightsFirst, int kTileN, int kTileT, int kCluster>
constexpr GemmVariant Variant() {
  using C = GemmConfig<kScaling, kWeightsFirst, kTileN, kTileT, kCluster>;
  return {.tiling = {kWeightsFirst, kTileN, kTileT},
          .cluster = kCluster,
          .stage_k = C::kStageK,
          .launch = &LaunchGemm<C>};
}

}  // namespace hayate::ops::sm90
