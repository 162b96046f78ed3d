#include "ops/matmul/layer_tail.h"

namespace hayate::ops {

void LayerTail(Stream stream, Workspace& workspace, const LayerTailArgs& args) {
  MatmulSwiGluArgs gate_up = args.gate_up;
  gate_up.product.x_norm = MatmulAddNorm(stream, workspace, args.output);
  MatmulSwiGlu(stream, workspace, gate_up);
  MatmulArgs next = args.next;
  next.x_norm = MatmulAddNorm(stream, workspace, args.down);
  Matmul(stream, workspace, next);
}

}  // namespace hayate::ops
