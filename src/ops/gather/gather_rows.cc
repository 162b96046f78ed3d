#include "ops/gather/gather_rows.h"

#include <cstring>

#include "base/check.h"
#include "ops/gather/sm90/gather_rows.h"
#include "tensor/cuda_build.h"

namespace hayate::ops {

void GatherRows(Stream stream, const GatherRowsArgs& args) {
  DCHECK(args.out.dtype == args.from.dtype && args.out.cols() == args.from.cols());
  if constexpr (kCudaBuild) {
    if (OnCuda(stream)) return sm90::GatherRows(stream, args);
  }
  const int64_t row_bytes = RowBytes(args.out.dtype, args.out.cols());
  for (int64_t i = 0; i < args.out.rows(); ++i) {
    DCHECK(args.index[i] >= 0 && args.index[i] < args.from.rows()) << args.index[i];
    std::memcpy(args.out.data + i * row_bytes, args.from.data + args.index[i] * row_bytes,
                static_cast<size_t>(row_bytes));
  }
}

}  // namespace hayate::ops
