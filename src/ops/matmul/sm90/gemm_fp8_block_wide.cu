#include "ops/matmul/sm90/gemm_launch.cuh"

namespace hayate::ops::sm90 {

// Tiles of all of up to 128 tokens, then those of many.
std::span<const GemmVariant> Fp8BlockWide() {
  constexpr Scaling kBlock = Scaling::kBlock;
  constexpr GemmShape kWide = GemmShape::kWide;
  static constexpr GemmVariant kVariants[] = {
      Variant<kBlock, kWide, 64, 128, 2>(),  Variant<kBlock, kWide, 80, 128, 2>(),
      Variant<kBlock, kWide, 96, 128, 2>(),  Variant<kBlock, kWide, 112, 128, 2>(),
      Variant<kBlock, kWide, 128, 128, 1>(), Variant<kBlock, kWide, 160, 128, 1>(),
      Variant<kBlock, kWide, 128, 256, 1>(), Variant<kBlock, kWide, 192, 128, 2>(),
      Variant<kBlock, kWide, 128, 128, 2>(),
  };
  return kVariants;
}

}  // namespace hayate::ops::sm90
