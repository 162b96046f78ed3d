#include "ops/matmul/sm90/fitted_launch.cuh"

namespace hayate::ops::sm90 {

std::span<const FittedVariant> FittedBf16() { return FittedEntries<Scaling::kNone>(); }

}  // namespace hayate::ops::sm90
