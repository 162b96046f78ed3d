#include "ops/matmul/sm90/gemm_launch.cuh"

namespace hayate::ops::sm90 {

std::span<const GemmVariant> Fp8VectorNarrow() { return NarrowVariants<Scaling::kVector>(); }

}  // namespace hayate::ops::sm90
