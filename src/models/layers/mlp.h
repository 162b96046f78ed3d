#pragma once
// One rank's part of a gated feed-forward layer: rows [begin, end) of gate and up, and the same
// columns of down.

#include "models/layers/linear.h"
#include "ops/matmul/matmul_swiglu.h"

namespace hayate::models {

struct MlpLayer {
  Linear gate_up;  // rows: this rank's gate, then its up
  Linear down;     // [H, F of this rank]
};

// The first half of a layer that has a width, between memory of the workspace: glu.out or glu.fp8
// is what down multiplies.
ops::MatmulSwiGluArgs TakeGateUp(Workspace& workspace, const MlpLayer& layer,
                                 const LinearInput& input);
// out [T, H] = this rank's part of down(silu(gate(x)) · up(x)); the ranks' parts add up to the
// layer.
void ApplyMlp(Stream stream, Workspace& workspace, const MlpLayer& layer, const LinearInput& input,
              TensorView out);

// Upper bound of what ApplyMlp takes from the workspace, bytes. `width` is F of this rank.
int64_t MlpWorkspaceBytes(int64_t max_tokens, int64_t hidden_size, int64_t width);

}  // namespace hayate::models
