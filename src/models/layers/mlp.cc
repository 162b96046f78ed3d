#include "models/layers/mlp.h"

#include <algorithm>

namespace hayate::models {

ops::MatmulSwiGluArgs TakeGateUp(Workspace& workspace, const MlpLayer& layer,
                                 const LinearInput& input) {
  const DType dtype = input.x.dtype;
  const int64_t rows = input.x.rows(), width = layer.down.k();
  TensorView hidden{nullptr, dtype, Shape{rows, width}};
  ops::Fp8Rows fp8;
  if (const auto scaling = layer.down.WantedFp8()) {
    fp8 = ops::TakeFp8Rows(workspace, *scaling, rows, width);
  } else {
    hidden = workspace.Take(dtype, {rows, width});
  }
  const TensorView gate_up = workspace.Take(dtype, {rows, 2 * width});
  return {.product = ProductOf(layer.gate_up, input, gate_up),
          .glu = {.out = hidden, .gate_up = gate_up, .fp8 = fp8}};
}

void ApplyMlp(Stream stream, Workspace& workspace, const MlpLayer& layer, const LinearInput& input,
              TensorView out) {
  if (layer.down.k() == 0) return Apply(stream, workspace, layer.down, input, out);
  const size_t mark = workspace.mark();
  const ops::MatmulSwiGluArgs gate_up = TakeGateUp(workspace, layer, input);
  ops::MatmulSwiGlu(stream, workspace, gate_up);
  Apply(stream, workspace, layer.down, {gate_up.glu.out, gate_up.glu.fp8}, out);
  workspace.ResetTo(mark);
}

int64_t MlpWorkspaceBytes(int64_t max_tokens, int64_t hidden_size, int64_t width) {
  return 3 * max_tokens * width * static_cast<int64_t>(sizeof(float)) +
         2 * static_cast<int64_t>(Workspace::kAlignment) +
         std::max(ops::MatmulWorkspaceBytes(max_tokens, hidden_size),
                  ops::MatmulWorkspaceBytes(max_tokens, width));
}

}  // namespace hayate::models
