#include "ops/matmul/sm90/gemm_launch.cuh"

namespace hayate::ops::sm90 {

std::span<const GemmVariant> Fp8BlockNarrow() { return NarrowVariants<Scaling::kBlock>(); }

}  // namespace hayate::ops::sm90
