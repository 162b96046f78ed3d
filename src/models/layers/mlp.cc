#include "models/layers/mlp.h"

#include <algorithm>

#include "ops/activation/swiglu.h"

namespace hayate::models {

void ApplyMlp(Stream stream, Workspace& workspace, const MlpLayer& layer, const LinearInput& input,
              TensorView out) {
  const size_t mark = workspace.mark();
  const DType dtype = input.x.dtype;
  const int64_t rows = input.x.rows(), width = layer.down.k();
  TensorView hidden{nullptr, dtype, Shape{rows, width}};
  ops::Fp8Rows fp8;
  if (const auto scaling = layer.down.WantedFp8()) {
    fp8 = ops::TakeFp8Rows(workspace, *scaling, rows, width);
  } else {
    hidden = workspace.Take(dtype, {rows, width});
  }
  if (width > 0) {
    const size_t gate_up_mark = workspace.mark();
    const TensorView gate_up = workspace.Take(dtype, {rows, 2 * width});
    Apply(stream, workspace, layer.gate_up, input, gate_up);
    ops::SwiGlu(stream, {.out = hidden, .gate_up = gate_up, .fp8 = fp8});
    workspace.ResetTo(gate_up_mark);
  }
  Apply(stream, workspace, layer.down, {hidden, fp8}, out);
  workspace.ResetTo(mark);
}

int64_t MlpWorkspaceBytes(int64_t max_tokens, int64_t hidden_size, int64_t width) {
  return 3 * max_tokens * width * static_cast<int64_t>(sizeof(float)) +
         2 * static_cast<int64_t>(Workspace::kAlignment) +
         std::max(ops::MatmulWorkspaceBytes(max_tokens, hidden_size),
                  ops::MatmulWorkspaceBytes(max_tokens, width));
}

}  // namespace hayate::models
