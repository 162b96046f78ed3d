#include "ops/matmul/sm90/fitted_launch.cuh"

namespace hayate::ops::sm90 {

std::span<const FittedVariant> FittedFp8() { return FittedEntries<Scaling::kVector>(); }

}  // namespace hayate::ops::sm90
