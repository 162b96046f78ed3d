#pragma once
// The compiled tilings of each operand type. Tables in several .cu files, so that they build in
// parallel.

#include <span>

#include "ops/matmul/sm90/gemm_config.cuh"

namespace hayate::ops::sm90 {

struct GemmVariant {
  GemmTiling tiling;
  void (*launch)(const Stream& stream, const GemmParams& params, int blocks,
                 bool w_changes) = nullptr;
};

std::span<const GemmVariant> Bf16Narrow();
std::span<const GemmVariant> Bf16Wide();
std::span<const GemmVariant> Fp8BlockNarrow();
std::span<const GemmVariant> Fp8BlockWide();
std::span<const GemmVariant> Fp8VectorNarrow();
std::span<const GemmVariant> Fp8VectorWide();

std::span<const GemmVariant> VariantsOf(Scaling scaling, GemmShape shape);

}  // namespace hayate::ops::sm90
