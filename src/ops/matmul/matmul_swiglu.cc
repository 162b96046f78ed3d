#include "ops/matmul/matmul_swiglu.h"

#include "base/check.h"
#include "ops/matmul/sm90/fused.h"
#include "tensor/cuda_build.h"

namespace hayate::ops {

void MatmulSwiGlu(Stream stream, Workspace& workspace, const MatmulSwiGluArgs& args) {
  DCHECK(args.product.out.data == args.glu.gate_up.data);
  if constexpr (kCudaBuild) {
    if (OnCuda(stream) && sm90::GatedMatmul(stream, args)) return;
  }
  Matmul(stream, workspace, args.product);
  SwiGlu(stream, args.glu);
}

}  // namespace hayate::ops
