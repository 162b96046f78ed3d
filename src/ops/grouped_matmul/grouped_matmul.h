#pragma once
// Products of the heads (or groups of heads) of every token with a matrix each: out[t, g] =
// W_g x[t, g]. On CUDA one launch for all groups.

#include <cstdint>
#include <vector>

#include "ops/matmul/matmul.h"

namespace hayate::ops {

struct MatrixGroup {
  std::vector<PackedMatrix> matrices;  // [G], each [N, K]
  Buffer addresses;                    // CUDA, of PlaceGroup: where the matrices lie, [G]

  int64_t bytes() const;
};
// To be called once all matrices are there, before the first product. kUnsupported where the device
// has no kernel for them.
Status PlaceGroup(Device& device, MatrixGroup& group);

struct GroupedMatmulArgs {
  TensorView out;     // [T, G, N], of the type of x
  ConstTensorView x;  // [T, G, K], f32 or, on CUDA, bf16
  const MatrixGroup* w = nullptr;
};
void GroupedMatmul(Stream stream, Workspace& workspace, const GroupedMatmulArgs& args);

// Upper bound of what GroupedMatmul takes from the workspace, bytes.
int64_t GroupedMatmulWorkspaceBytes(int64_t max_tokens, int64_t k);

}  // namespace hayate::ops
