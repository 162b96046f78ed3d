#include "ops/moe/sm90/grouped_kernel.cuh"

namespace hayate::ops::sm90 {

void GroupedMxfp4(Stream stream, const GroupedProductArgs& args) {
  grouped::LaunchLayout<MatrixLayout::kMxfp4>(stream, args);
}

}  // namespace hayate::ops::sm90
