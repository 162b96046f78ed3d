#include "ops/matmul/sm90/gemm_launch.cuh"

namespace hayate::ops::sm90 {

std::span<const GemmVariant> Fp8VectorWide() {
  static constexpr GemmVariant kVariants[] = {
      Variant<Scaling::kVector, GemmShape::kWide, 256, 128, 2>(),
      Variant<Scaling::kVector, GemmShape::kWide, 192, 128, 2>(),
      Variant<Scaling::kVector, GemmShape::kWide, 128, 128, 2>(),
  };
  return kVariants;
}

}  // namespace hayate::ops::sm90
