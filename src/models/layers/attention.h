#pragma once
// One rank's part of an attention layer: its query heads, the key-value heads they read, and the
// matching columns of the output projection.

#include "models/layers/head_shard.h"
#include "models/layers/linear.h"
#include "ops/attention/paged_attention.h"
#include "ops/rope/rope.h"

namespace hayate::models {

// Equal in all layers of a model.
struct AttentionShape {
  HeadShard heads;
  int32_t head_dim = 0;    // D
  int32_t group_size = 1;  // query heads to a key-value head
  int32_t rotary_dim = 0;
  ops::RopePairing pairing = ops::RopePairing::kHalves;
  float norm_eps = 1e-6f;

  int64_t q_width() const { return heads.query.size() * head_dim; }
  int64_t kv_width() const { return heads.kv.size() * head_dim; }
  int64_t qkv_width() const { return q_width() + 2 * kv_width(); }
};

struct AttentionLayer {
  Linear qkv;             // rows: this rank's q, then k, then v
  Linear output;          // [H, q_width]
  Buffer q_norm, k_norm;  // [D] f32, or empty
  Buffer sinks;           // of this rank's query heads, f32, or empty
  int32_t window = 0;
};

// What a step gives to every layer.
struct AttentionStep {
  const int32_t* positions = nullptr;  // [T]
  const float* cos_sin = nullptr;      // [T, rotary_dim]
};

// Activations have the dtype of the input. heads_out [T, q_width] = attention of the normed hidden
// states [T, H], after their keys and values were appended to `cache`. The output projection is
// left to the caller, who may want fewer rows.
void AttendHeads(Stream stream, Workspace& workspace, const AttentionShape& shape,
                 const AttentionLayer& layer, const AttentionStep& step,
                 const ops::AttentionRows& rows, const ops::KvLayerView& cache,
                 const LinearInput& input, TensorView heads_out);

// The first half alone, for a last layer of which no logits are wanted.
void AppendKeysValues(Stream stream, Workspace& workspace, const AttentionShape& shape,
                      const AttentionLayer& layer, const AttentionStep& step,
                      const ops::AttentionRows& rows, const ops::KvLayerView& cache,
                      const LinearInput& input);

// The same of what layer.qkv made of the input, [T, qkv_width]. Turns the queries and, on the CPU,
// the keys in place.
void AttendProjected(Stream stream, Workspace& workspace, const AttentionShape& shape,
                     const AttentionLayer& layer, const AttentionStep& step,
                     const ops::AttentionRows& rows, const ops::KvLayerView& cache,
                     const TensorView& qkv, TensorView heads_out);
void AppendProjected(Stream stream, const AttentionShape& shape, const AttentionLayer& layer,
                     const AttentionStep& step, const ops::AttentionRows& rows,
                     const ops::KvLayerView& cache, const TensorView& qkv);

// Upper bound of what AttendHeads takes from the workspace, bytes.
int64_t AttentionWorkspaceBytes(const AttentionShape& shape, int64_t max_tokens,
                                int64_t hidden_size);

}  // namespace hayate::models
