#pragma once
// DeepSeek V4.1-Flash. As V4, but for: compressed entries and their index keys belong to a few
// source layers, and selections to a few more; the layers in between read those. A sublayer's input
// is collapsed with the coefficients that the sublayer before computed. Two layers add rows of
// Engram tables to the streams first.
//
//   h[4] ← embedding[token] in every stream;  p ← (1, 0, 0, 0)
//   per layer:  h ← engram(h) where the layer has one
//               u ← enter(h, p);  p ← its pre;  h ← leave(h, Σ_ranks attention(u))
//               u ← enter(h, p);  p ← its pre;  h ← leave(h, Σ_ranks experts(u))
//   logits ← head · norm(collapse(h, p))
//
// Every layer computes every position, so logits do not depend on how a prompt was cut or cached.

#include <memory>

#include "base/status.h"
#include "models/model.h"
#include "models/registry.h"
#include "weights/checkpoint.h"

namespace hayate::models {

Result<std::unique_ptr<Model>> LoadDeepseekV41(const weights::Checkpoint& checkpoint,
                                               const LoadOptions& options);

}  // namespace hayate::models
