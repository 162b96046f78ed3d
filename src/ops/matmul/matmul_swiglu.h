#pragma once
// The first half of a gated feed-forward layer, as one operator: silu(x · gateᵀ) · (x · upᵀ).

#include "ops/activation/swiglu.h"
#include "ops/matmul/matmul.h"

namespace hayate::ops {

struct MatmulSwiGluArgs {
  MatmulArgs product;  // rows of w: gate, then up
  SwiGluArgs glu;      // glu.gate_up is product.out
};
// The bits of Matmul and SwiGlu one after the other, but that on CUDA, outside of the fixed order
// of sums, rows may be rounded to bf16 before they are quantised. What product.out holds afterwards
// is unspecified.
void MatmulSwiGlu(Stream stream, Workspace& workspace, const MatmulSwiGluArgs& args);

}  // namespace hayate::ops
