#include "ops/matmul/sm90/gemm_launch.cuh"

namespace hayate::ops::sm90 {

std::span<const GemmVariant> Fp8VectorVariants() {
  constexpr Scaling kVector = Scaling::kVector;
  static constexpr GemmVariant kVariants[] = {
      Variant<kVector, true, 128, 8, 1>(),    Variant<kVector, true, 128, 16, 1>(),
      Variant<kVector, true, 128, 32, 1>(),   Variant<kVector, true, 128, 64, 1>(),
      Variant<kVector, true, 128, 128, 1>(),  Variant<kVector, false, 128, 128, 2>(),
      Variant<kVector, false, 256, 128, 2>(),
  };
  return kVariants;
}

}  // namespace hayate::ops::sm90
