#pragma once
// A loaded model: one rank's shard of the weights and the forward pass over it. Made by LoadModel
// (registry.h) on the rank's own thread and used from that thread alone. Knows nothing of requests:
// a ForwardBatch comes in, logits go out.

#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include "comm/group.h"
#include "comm/token_exchange.h"
#include "models/forward_batch.h"
#include "ops/attention/attention_plan.h"
#include "ops/moe/moe.h"
#include "tensor/cache_layout.h"
#include "tensor/device.h"
#include "tensor/workspace.h"

namespace hayate::models {

// What the rest of the engine needs to know of a model. Equal on every rank.
struct ModelFacts {
  std::string architecture;     // as the checkpoint spells it: "llama", "Qwen3ForCausalLM"
  int32_t vocab_size = 0;       // V
  int32_t max_context = 0;      // positions that the model was loaded for
  int32_t trained_context = 0;  // positions that the checkpoint promises
  int32_t hidden_size = 0;      // H
  int32_t num_layers = 0;
  std::vector<int32_t> eos_ids;  // from config and generation config; may be empty
  int64_t num_parameters = 0;
};

// What a forward pass runs on. Everything belongs to the caller and to this rank.
struct ForwardContext {
  Stream stream;
  Workspace* workspace = nullptr;  // at least workspace_bytes(T) free
  comm::Group* group = nullptr;    // the attention group: size and rank as in LoadOptions
  // Where rows travel to their experts (LoadOptions::experts): over all ranks of the replica.
  comm::TokenExchange* exchange = nullptr;
  std::span<const comm::ExpertPlacement> placements;  // as LoadOptions::experts
  // [layers of the model, E] or empty: how often each expert was chosen, added to by the rank that
  // routed the row. On the CPU read by any thread; device memory, and with an exchange alone, on
  // CUDA.
  std::span<int64_t> expert_counts;
  // With counts, in device memory: tokens of the batch, and rows with logits, from there on are
  // padding and not counted. Null: none are.
  const int32_t* num_unpadded = nullptr;
  // Per cache group the base of this rank's pool: page p lies at base + p × page_bytes(group).
  std::span<std::byte* const> pools;
};

class Model {
 public:
  virtual ~Model() = default;

  virtual const ModelFacts& facts() const = 0;
  // Equal on every rank: page_bytes of a group is that of the rank that holds the most.
  virtual const CacheLayout& cache_layout() const = 0;
  // Bytes of one page of a group on this rank, the stride of its pool; 0 for a rank without heads.
  virtual int64_t page_bytes(int group) const = 0;
  // The most drafts that rows may end in: what the model's states can take back. Without a state
  // group any number: entries of refused tokens lie behind the sequence's end and are written
  // again.
  virtual int32_t max_drafts() const {
    for (const CacheGroup& group : cache_layout().groups) {
      if (group.kind == CacheKind::kState) return 0;
    }
    return std::numeric_limits<int32_t>::max();
  }
  // F, what a forward pass leaves of each token for the drafter that the model was loaded with; 0:
  // nothing. Equal on every rank.
  virtual int64_t feature_width() const { return 0; }
  // Whether a forward pass writes ForwardBatch::hidden.
  virtual bool gives_hidden() const { return false; }
  // How the layers of a group attend on this rank, for whoever plans their steps; the bounds of a
  // step are the planner's. A shape that CanPlan refuses: the layers want no plan.
  virtual ops::AttentionPlanShape attention_shape(int) const { return {}; }
  // Bytes that a Forward over at most `max_tokens` tokens, `max_logits` of them with logits, takes.
  virtual int64_t workspace_bytes(int64_t max_tokens, int64_t max_logits) const = 0;
  // Bytes of this rank's prepared weights.
  virtual int64_t weight_bytes() const = 0;
  // This rank's experts of a layer, for whoever moves them between ranks while no Forward runs;
  // null where the layer has none.
  virtual const ops::ExpertWeights* experts(int /*layer*/) const { return nullptr; }

  // Appends the tokens' keys and values to the cache and writes logits. All ranks of the group call
  // it with equal batches; they meet in its all-reduces. A row's logits depend on that row's tokens
  // alone, to the bit: not on the other rows, not on how its prompt was chunked.
  virtual void Forward(const ForwardBatch& batch, const ForwardContext& context) = 0;
};

}  // namespace hayate::models
