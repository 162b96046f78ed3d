#include "ops/moe/sm90/grouped_kernel.cuh"

namespace hayate::ops::sm90 {

void GroupedBf16(Stream stream, const GroupedProductArgs& args) {
  grouped::LaunchLayout<MatrixLayout::kBf16>(stream, args);
}

}  // namespace hayate::ops::sm90
