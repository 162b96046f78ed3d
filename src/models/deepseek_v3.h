#pragma once
// DeepSeek V3, V3.1 and R1, and V3.2 with its indexer. Pre-norm; multi-head latent attention; gated
// units in the first layers, then mixtures of experts behind a grouped sigmoid router:
//
//   h ← embedding[tokens]
//   per layer:  h ← h + Σ_ranks attention(norm(h));   h ← h + Σ_ranks ffn(norm(h))
//   logits ← head · norm(h)
//
//   attention(x):  q = q_up · norm(q_down · x);  [c | r] = kv_down · x into the cache;
//                  V3.2: only the tokens that the indexer picks are attended to
//   indexer(x):    score(t, s) = Σ_h w_h(t) relu(qᵢ_h(t) · kᵢ(s)), the top_k highest
//
// h, the latents and the index keys are whole on every rank; a rank computes its heads, its experts
// and its parts of the dense layers, the shared expert and the vocabulary.

#include <memory>

#include "models/detail/deepseek_v3_config.h"
#include "models/model.h"
#include "models/registry.h"

namespace hayate::models {

Result<std::unique_ptr<Model>> LoadDeepseekV3(const weights::Checkpoint& checkpoint,
                                              const DeepseekV3Config& config,
                                              const LoadOptions& options);

}  // namespace hayate::models
