#include "ops/matmul/sm90/gemm_launch.cuh"

namespace hayate::ops::sm90 {

std::span<const GemmVariant> Bf16Wide() {
  static constexpr GemmVariant kVariants[] = {
      Variant<Scaling::kNone, GemmShape::kWide, 256, 128, 2>(),
      Variant<Scaling::kNone, GemmShape::kWide, 128, 128, 2>(),
  };
  return kVariants;
}

}  // namespace hayate::ops::sm90
