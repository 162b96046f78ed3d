#include "ops/gather/copy_columns.h"

#include <algorithm>

#include "base/check.h"
#include "ops/gather/sm90/gather_rows.h"
#include "tensor/cuda_build.h"

namespace hayate::ops {

void CopyColumns(Stream stream, const CopyColumnsArgs& args) {
  DCHECK_EQ(args.out.cols(), args.from.cols());
  if constexpr (kCudaBuild) {
    if (OnCuda(stream)) return sm90::CopyColumns(stream, args);
  }
  const int64_t width = args.out.cols();
  const int64_t out_stride = args.out_row_stride == 0 ? width : args.out_row_stride;
  const int64_t from_stride = args.from_row_stride == 0 ? width : args.from_row_stride;
  for (int64_t i = 0; i < args.out.rows(); ++i) {
    const int64_t row = args.index == nullptr ? i : args.index[i];
    DCHECK(row >= 0 && row < args.from.rows()) << row;
    std::copy_n(args.from.as<float>() + row * from_stride, width,
                args.out.as<float>() + i * out_stride);
  }
}

}  // namespace hayate::ops
