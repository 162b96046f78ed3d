#pragma once
// Decoders of equal dense layers: Llama, Mistral, Qwen2, Qwen3. Pre-norm, rotary attention, SwiGLU:
//
//   h ← embedding[tokens]
//   per layer:  h ← h + Σ_ranks attention(norm(h));   h ← h + Σ_ranks mlp(norm(h))
//   logits ← head · norm(h)
//
// h is whole on every rank; a rank computes its heads, its part of F and its part of the
// vocabulary.

#include <memory>

#include "models/config.h"
#include "models/model.h"
#include "models/registry.h"

namespace hayate::models {

Result<std::unique_ptr<Model>> LoadDenseModel(const weights::Checkpoint& checkpoint,
                                              const ModelConfig& config,
                                              const LoadOptions& options);

}  // namespace hayate::models
