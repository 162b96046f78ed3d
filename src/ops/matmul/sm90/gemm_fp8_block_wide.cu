#include "ops/matmul/sm90/gemm_launch.cuh"

namespace hayate::ops::sm90 {

std::span<const GemmVariant> Fp8BlockWide() {
  static constexpr GemmVariant kVariants[] = {
      Variant<Scaling::kBlock, GemmShape::kWide, 128, 256, 1>(),
      Variant<Scaling::kBlock, GemmShape::kWide, 192, 128, 2>(),
      Variant<Scaling::kBlock, GemmShape::kWide, 128, 128, 2>(),
  };
  return kVariants;
}

}  // namespace hayate::ops::sm90
