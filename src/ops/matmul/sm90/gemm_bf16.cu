#include "ops/matmul/sm90/gemm_launch.cuh"

namespace hayate::ops::sm90 {

std::span<const GemmVariant> Bf16Variants() {
  constexpr Scaling kNone = Scaling::kNone;
  static constexpr GemmVariant kVariants[] = {
      Variant<kNone, true, 128, 8, 1>(),    Variant<kNone, true, 128, 16, 1>(),
      Variant<kNone, true, 128, 32, 1>(),   Variant<kNone, true, 128, 64, 1>(),
      Variant<kNone, true, 128, 128, 1>(),  Variant<kNone, false, 128, 128, 2>(),
      Variant<kNone, false, 256, 128, 2>(),
  };
  return kVariants;
}

}  // namespace hayate::ops::sm90
