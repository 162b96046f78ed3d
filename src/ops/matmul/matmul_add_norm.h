#pragma once
// What ends a part of a layer, as one operator: a projection, its sum with the residual stream, and
// the norm before the next projection.

#include "ops/matmul/matmul.h"
#include "ops/norm/rms_norm.h"

namespace hayate::ops {

struct MatmulAddNormArgs {
  MatmulArgs product;
  AddRmsNormArgs norm;  // norm.x is product.out
  // The one product that reads norm.out, where nothing else does, and [DeferredNormFloats(H)] of
  // device memory: the norm may then leave its division to that product.
  const PackedMatrix* next = nullptr;
  float* squares = nullptr;
};
// What product.out holds afterwards is unspecified. The product `next` must be given what this
// returns as its x_norm; squares are in use until then. Only CUDA defers, for few tokens, and never
// in the fixed order of sums.
[[nodiscard]] DeferredNorm MatmulAddNorm(Stream stream, Workspace& workspace,
                                         const MatmulAddNormArgs& args);

// For rows of `columns` features, whatever T is.
int64_t DeferredNormFloats(int64_t columns);

}  // namespace hayate::ops
