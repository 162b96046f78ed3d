#pragma once
// The compiled tilings of each operand type. A table per .cu file, so that they build in parallel.

#include <span>

#include "ops/matmul/sm90/gemm_config.cuh"

namespace hayate::ops::sm90 {

struct GemmVariant {
  GemmTiling tiling;
  int cluster = 1;
  int stage_k = 64;  // elements of K a stage
  void (*launch)(const Stream& stream, const GemmParams& params, int blocks) = nullptr;
};

std::span<const GemmVariant> Bf16Variants();
std::span<const GemmVariant> Fp8BlockVariants();
std::span<const GemmVariant> Fp8VectorVariants();
std::span<const GemmVariant> VariantsOf(Scaling scaling);

}  // namespace hayate::ops::sm90
