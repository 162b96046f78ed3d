#pragma once
// DeepSeek V4-Flash and V4-Pro. Four residual streams mixed by hyper-connections around every
// sublayer; attention over one latent row per token in a sliding window, and over compressed
// entries of the whole past; experts chosen by a gate or, in the first layers, by the token's id:
//
//   h[4] ← embedding[token] in every stream
//   per layer:  u ← enter(h);  h ← leave(h, Σ_ranks attention(u))
//               u ← enter(h);  h ← leave(h, Σ_ranks experts(u, token))
//   logits ← head · norm(collapse(h))
//
// Latents, compressors and the indexer are whole on every rank; a rank computes its heads (in whole
// groups of the output projection), its part of the experts and of the vocabulary.

#include <memory>

#include "base/status.h"
#include "models/model.h"
#include "models/registry.h"
#include "weights/checkpoint.h"

namespace hayate::models {

Result<std::unique_ptr<Model>> LoadDeepseekV4(const weights::Checkpoint& checkpoint,
                                              const LoadOptions& options);

}  // namespace hayate::models
