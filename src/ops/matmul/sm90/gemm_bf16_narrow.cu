#include "ops/matmul/sm90/gemm_launch.cuh"

namespace hayate::ops::sm90 {

std::span<const GemmVariant> Bf16Narrow() { return NarrowVariants<Scaling::kNone>(); }

}  // namespace hayate::ops::sm90
