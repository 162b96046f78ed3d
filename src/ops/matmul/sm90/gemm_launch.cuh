#pragma once
// One compiled tiling as an entry of a table.

#include "ops/matmul/sm90/gemm_kernel.cuh"
#include "ops/matmul/sm90/gemm_variants.h"
#include "tensor/cuda/check.h"

namespace hayate::ops::sm90 {

template <typename C>
void LaunchGemm(const Stream& stream, const GemmParams& params, int blocks, bool w_changes) {
  // Of the current device, so not once a process.
  CUDA_CHECK(stream.device,
             cudaFuncSetAttribute(GemmKernel<C>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                  C::kSharedBytes));
  cudaLaunchAttribute attributes[2];
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
  CUDA_CHECK(stream.device, cudaLaunchKernelEx(&config, GemmKernel<C>, params));
  CUDA_CHECK_LAUNCH(stream, "gemm", params.t, params.n, params.k_blocks);
}

template <Scaling kScaling, GemmShape kShape, int kTileN, int kTileT, int kCluster,
          bool kInOrder = false, int kParts = 1>
constexpr GemmVariant Variant() {
  using C = GemmConfig<kScaling, kShape, kTileN, kTileT, kCluster, kInOrder, kParts>;
  return {.tiling = {kShape, kTileN, kTileT, kCluster, kInOrder, kParts},
          .boxes = {C::kBoxN, C::kBoxT, C::kBlocks, C::kBoxBlocksX},
          .launch = &LaunchGemm<C>};
}

// Narrow tiles of every width that evens out the shares of some N. fp8 tiles of 64 features and
// more sum in order as they are, but for those in parts.
template <Scaling kScaling>
std::span<const GemmVariant> NarrowVariants() {
  constexpr GemmShape kNarrow = GemmShape::kNarrow;
  constexpr bool kInOrder = kScaling == Scaling::kNone;
  static constexpr GemmVariant kVariants[] = {
      Variant<kScaling, kNarrow, 32, 16, 1, true>(),
      Variant<kScaling, kNarrow, 48, 16, 1, true>(),
      Variant<kScaling, kNarrow, 64, 16, 1, kInOrder>(),
      Variant<kScaling, kNarrow, 96, 16, 1, kInOrder>(),
      Variant<kScaling, kNarrow, 192, 16, 1, kInOrder>(),
      Variant<kScaling, kNarrow, 16, 16, 1>(),
      Variant<kScaling, kNarrow, 32, 16, 1>(),
      Variant<kScaling, kNarrow, 48, 16, 1>(),
      Variant<kScaling, kNarrow, 64, 16, 1>(),
      Variant<kScaling, kNarrow, 80, 16, 1>(),
      Variant<kScaling, kNarrow, 96, 16, 1>(),
      Variant<kScaling, kNarrow, 112, 16, 1>(),
      Variant<kScaling, kNarrow, 192, 16, 1>(),
      Variant<kScaling, kNarrow, 16, 64, 2>(),
      Variant<kScaling, kNarrow, 32, 64, 2>(),
      Variant<kScaling, kNarrow, 48, 64, 2>(),
      Variant<kScaling, kNarrow, 64, 64, 2>(),
      Variant<kScaling, kNarrow, 80, 64, 2>(),
      Variant<kScaling, kNarrow, 96, 64, 2>(),
      Variant<kScaling, kNarrow, 112, 64, 2>(),
      Variant<kScaling, kNarrow, 192, 64, 2>(),
      Variant<kScaling, kNarrow, 32, 128, 2>(),
      Variant<kScaling, kNarrow, 64, 128, 2>(),
      Variant<kScaling, kNarrow, 80, 128, 2>(),
      Variant<kScaling, kNarrow, 96, 128, 2>(),
      Variant<kScaling, kNarrow, 192, 128, 2>(),
      Variant<kScaling, kNarrow, 64, 64, 1, false, 2>(),
      Variant<kScaling, kNarrow, 96, 64, 1, false, 2>(),
      Variant<kScaling, kNarrow, 64, 128, 1, false, 2>(),
      Variant<kScaling, kNarrow, 96, 128, 1, false, 2>(),
      Variant<kScaling, kNarrow, 128, 128, 1, false, 2>(),
  };
  return kVariants;
}

}  // namespace hayate::ops::sm90
