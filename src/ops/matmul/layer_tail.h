#pragma once
// What lies between the attentions of two dense layers, as one operator: the output projection, the
// gated feed-forward layer and the next layer's first projection, with the norms between.

#include "ops/matmul/matmul_add_norm.h"
#include "ops/matmul/matmul_swiglu.h"

namespace hayate::ops {

struct LayerTailArgs {
  MatmulAddNormArgs output;  // its `next` is gate_up's matrix
  MatmulSwiGluArgs gate_up;  // of output.norm.out
  MatmulAddNormArgs down;    // of gate_up.glu.out; its `next` is next's matrix
  MatmulArgs next;           // of down.norm.out
};
// What the products of all but `next` hold afterwards is unspecified.
void LayerTail(Stream stream, Workspace& workspace, const LayerTailArgs& args);

}  // namespace hayate::ops
