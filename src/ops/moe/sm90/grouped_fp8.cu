#include "ops/moe/sm90/grouped_kernel.cuh"

namespace hayate::ops::sm90 {

void GroupedFp8(Stream stream, const GroupedProductArgs& args) {
  if (args.w.layout == MatrixLayout::kFp8Block) {
    return grouped::LaunchLayout<MatrixLayout::kFp8Block>(stream, args);
  }
  grouped::LaunchLayout<MatrixLayout::kFp8Vector>(stream, args);
}

}  // namespace hayate::ops::sm90
