#include "ops/matmul/sm90/gemm_launch.cuh"

namespace hayate::ops::sm90 {

std::span<const GemmVariant> Fp8BlockVariants() {
  constexpr Scaling kBlock = Scaling::kBlock;
  static constexpr GemmVariant kVariants[] = {
      Variant<kBlock, true, 128, 8, 1>(),    Variant<kBlock, true, 128, 16, 1>(),
      Variant<kBlock, true, 128, 32, 1>(),   Variant<kBlock, true, 128, 64, 1>(),
      Variant<kBlock, true, 128, 128, 1>(),  Variant<kBlock, true, 256, 64, 1>(),
      Variant<kBlock, false, 128, 128, 2>(), Variant<kBlock, false, 192, 128, 2>(),
  };
  return kVariants;
}

}  // namespace hayate::ops::sm90
