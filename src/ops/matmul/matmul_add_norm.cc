#include "ops/matmul/matmul_add_norm.h"

#include "base/align.h"
#include "base/check.h"
#include "ops/matmul/sm90/fused.h"
#include "tensor/cuda_build.h"

namespace hayate::ops {

DeferredNorm MatmulAddNorm(Stream stream, Workspace& workspace, const MatmulAddNormArgs& args) {
  DCHECK(args.product.out.data == args.norm.x.data);
  if constexpr (kCudaBuild) {
    if (OnCuda(stream)) {
      if (const auto deferred = sm90::MatmulAddSquares(stream, args)) return *deferred;
    }
  }
  Matmul(stream, workspace, args.product);
  AddRmsNorm(stream, args.norm);
  return {};
}

int64_t DeferredNormFloats(int64_t columns) {
  // The last tile may have parts without columns.
  return sm90::kMaxDeferredTokens * (CeilDiv(columns, sm90::kMinPartColumns) + 2);
}

}  // namespace hayate::ops
