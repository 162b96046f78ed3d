#pragma once
// The residual streams of DeepSeek V4 and V4.1, and what runs around and between the attention
// sublayers: hyper-connections, experts, the head.

#include <span>

#include "models/detail/deepseek_trunk_weights.h"
#include "models/model.h"

namespace hayate::models {

// What passes from sublayer to sublayer, for all tokens or for some of them. Lives in the step's
// workspace.
struct StreamRows {
  TensorView streams;       // [T, 4, H] f32
  TensorView input;         // [T, H], of a sublayer
  TensorView part;          // [T, H]: this rank's part of a sublayer's output, then the sum
  TensorView coefficients;  // [T, 24], of the sublayer that runs
  TensorView previous;      // [T, 24], of the one before; StreamEntry::kEarlier alone
  const int32_t* token_ids = nullptr;  // [T]
  std::span<const int32_t> per_rank;  // where rows travel to experts: ForwardBatch's, of these rows

  int64_t count() const { return input.shape[0]; }
};

class DeepseekStreams {
 public:
  // `activations`: of what sublayers take and give; streams and coefficients are f32.
  DeepseekStreams(const DeepseekTrunkConfig& config, DType activations)
      : config_(config), activations_(activations) {}

  StreamRows Take(Workspace& workspace, int64_t count) const;
  // Bytes of Take's rows, and what the functions below take for `max_tokens`.
  int64_t RowsBytes(int64_t count) const;
  int64_t WorkspaceBytes(const ops::MoeConfig& moe, int64_t num_experts, int64_t max_tokens,
                         int num_dp_ranks = 0) const;

  // The tokens' embeddings, in every stream.
  void Start(const ForwardContext& context, ConstTensorView embedding, const int32_t* token_ids,
             StreamRows& rows) const;
  // Streams that were filled otherwise: their first sublayer takes what a first layer takes.
  void StartEntry(const ForwardContext& context, StreamRows& rows) const;
  // rows.input, for the sublayer.
  void Enter(const ForwardContext& context, const HyperWeights& hyper, const Buffer& norm,
             StreamRows& rows) const;
  // Adds Σ_ranks rows.part to the streams.
  void Leave(const ForwardContext& context, StreamRows& rows) const;
  void RunExperts(const ForwardContext& context, const HyperLayer& layer, const ops::MoeConfig& moe,
                  StreamRows& rows) const;
  // A rank without rows takes part in what becomes of the others'.
  void JoinExperts(const ForwardContext& context, const HyperLayer& layer,
                   const ops::MoeConfig& moe, std::span<const int32_t> per_rank) const;
  // Rows index[0 … count) of `all`.
  StreamRows Keep(const ForwardContext& context, const StreamRows& all, const int32_t* index,
                  int32_t count) const;
  // rows.input = the streams' weighted sum, not normed where `norm` is null. `hyper`: of
  // StreamEntry::kOwn.
  void Collapse(const ForwardContext& context, const HyperWeights* hyper, const Buffer* norm,
                StreamRows& rows) const;

 private:
  const DeepseekTrunkConfig& config_;
  const DType activations_;
};

// logits [L, V]: this rank's columns of head · x [L, H].
void WriteHeadLogits(const ForwardContext& context, const TrunkWeights& trunk, int32_t vocab_size,
                     ConstTensorView x, float* logits);

}  // namespace hayate::models
