#pragma once
// The first half of a gated feed-forward layer, as one operator: silu(x · gateᵀ) · (x · upᵀ).

#include "ops/activation/swiglu.h"
#include "ops/matmul/matmul.h"

namespace hayate::ops {

struct MatmulSwiGluArgs {
  MatmulArgs product;  // rows of w: gate, then up
  SwiGluArgs glu;      // glu.gate_up is product.out
};
// The bits of Matmul and SwiGlu one after the other. What product.out holds afterwards is
// unspecified.
void MatmulSwiGlu(Stream stream, Workspace& workspace, const MatmulSwiGluArgs& args);

}  // namespace hayate::ops
