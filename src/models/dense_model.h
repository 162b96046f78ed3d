#pragma once
// Decoders with grouped-query attention: Llama, Mistral, Qwen2, Qwen3, the mixtures of Qwen and
// GPT-OSS. Pre-norm, rotary attention, and per layer a gated unit or a mixture of experts:
//
//   h ← embedding[tokens]
//   per layer:  h ← h + Σ_ranks attention(norm(h));   h ← h + Σ_ranks ffn(norm(h))
//   logits ← head · norm(h)
//
// h is whole on every rank; a rank computes its heads, its part of F or its experts, and its part
// of the vocabulary.

#include <memory>

#include "models/config.h"
#include "models/model.h"
#include "models/registry.h"

namespace hayate::models {

Result<std::unique_ptr<Model>> LoadDenseModel(const weights::Checkpoint& checkpoint,
                                              const ModelConfig& config,
                                              const LoadOptions& options);

}  // namespace hayate::models
