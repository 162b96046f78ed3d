#include "models/detail/deepseek_streams.h"

#include <algorithm>
#include <utility>

#include "models/layers/head_logits.h"
#include "models/layers/moe.h"
#include "ops/embedding/embedding.h"
#include "ops/gather/gather_rows.h"

namespace hayate::models {
namespace {

constexpr int64_t kStreams = ops::kHyperStreams;
constexpr auto kFloat = static_cast<int64_t>(sizeof(float));

const float* Floats(const Buffer& buffer) { return reinterpret_cast<const float*>(buffer.data()); }

// [T, 4, H] as [T, 4 × H].
TensorView Joined(const TensorView& streams) {
  return {streams.data, streams.dtype, {streams.shape[0], streams.shape[1] * streams.shape[2]}};
}

}  // namespace

StreamRows DeepseekStreams::Take(Workspace& workspace, int64_t count) const {
  const int64_t h = config_.hidden_size;
  StreamRows rows = {.streams = workspace.Take(DType::kF32, {count, kStreams, h}),
                     .input = workspace.Take(activations_, {count, h}),
                     .part = workspace.Take(activations_, {count, h}),
                     .coefficients = workspace.Take(DType::kF32, {count, ops::kHyperMixes})};
  if (config_.stream_entry == StreamEntry::kEarlier) {
    rows.previous = workspace.Take(DType::kF32, {count, ops::kHyperMixes});
  }
  return rows;
}

int64_t DeepseekStreams::RowsBytes(int64_t count) const {
  const int64_t floats = (kStreams + 2) * config_.hidden_size + 2 * ops::kHyperMixes + 1;
  return count * floats * kFloat + 6 * static_cast<int64_t>(Workspace::kAlignment);
}

int64_t DeepseekStreams::WorkspaceBytes(const ops::MoeConfig& moe, int64_t num_experts,
                                        int64_t max_tokens, int num_dp_ranks) const {
  return ops::HyperWorkspaceBytes(max_tokens, config_.hidden_size) +
         std::max(MoeLayerWorkspaceBytes(moe, num_experts, max_tokens, num_dp_ranks),
                  ops::MatmulWorkspaceBytes(max_tokens, config_.hidden_size));
}

void DeepseekStreams::Start(const ForwardContext& context, ConstTensorView embedding,
                            const int32_t* token_ids, StreamRows& rows) const {
  rows.token_ids = token_ids;
  const size_t mark = context.workspace->mark();
  const TensorView x = context.workspace->Take(DType::kF32, rows.input.shape);
  ops::Embedding(context.stream, {.out = x, .ids = token_ids, .table = embedding});
  ops::HyperExpand(context.stream, rows.streams, x);
  context.workspace->ResetTo(mark);
  StartEntry(context, rows);
}

// The streams are equal at the start: the first alone is their sum.
void DeepseekStreams::StartEntry(const ForwardContext& context, StreamRows& rows) const {
  if (config_.stream_entry == StreamEntry::kOwn) return;
  ops::HyperTakeFirst(context.stream, rows.previous);
}

void DeepseekStreams::Enter(const ForwardContext& context, const HyperWeights& hyper,
                            const Buffer& norm, StreamRows& rows) const {
  ops::HyperEnterArgs args = {
      .out = rows.input,
      .coefficients = rows.coefficients,
      .streams = rows.streams,
      .weights = hyper.View(config_.norm_eps, config_.hyper_eps, config_.hyper_iterations),
      .norm = Floats(norm)};
  if (config_.stream_entry == StreamEntry::kEarlier) {
    args.pre = rows.previous.as<float>();
    args.pre_stride = ops::kHyperMixes;
  }
  ops::HyperEnter(context.stream, *context.workspace, args);
}

void DeepseekStreams::Leave(const ForwardContext& context, StreamRows& rows) const {
  context.group->AllReduce(context.stream, rows.part);
  ops::HyperLeave(context.stream,
                  {.streams = rows.streams, .y = rows.part, .coefficients = rows.coefficients});
  if (config_.stream_entry == StreamEntry::kEarlier) std::swap(rows.coefficients, rows.previous);
}

void DeepseekStreams::RunExperts(const ForwardContext& context, const HyperLayer& layer,
                                 const ops::MoeConfig& moe, StreamRows& rows) const {
  Enter(context, layer.ffn_hyper, layer.ffn_norm, rows);
  ApplyMoe(context, {.out = rows.part,
                     .x = rows.input,
                     .token_ids = rows.token_ids,
                     .config = &moe,
                     .weights = &layer.experts,
                     .rows_per_rank = rows.per_rank,
                     .layer = layer.index});
  Leave(context, rows);
}

void DeepseekStreams::JoinExperts(const ForwardContext& context, const HyperLayer& layer,
                                  const ops::MoeConfig& moe,
                                  std::span<const int32_t> per_rank) const {
  JoinMoe(context, {.x = ConstTensorView{nullptr, activations_, {0, moe.hidden_size}},
                    .config = &moe,
                    .weights = &layer.experts,
                    .rows_per_rank = per_rank,
                    .layer = layer.index});
}

StreamRows DeepseekStreams::Keep(const ForwardContext& context, const StreamRows& all,
                                 const int32_t* index, int32_t count) const {
  StreamRows kept = Take(*context.workspace, count);
  ops::GatherRows(context.stream,
                  {.out = Joined(kept.streams), .from = Joined(all.streams), .index = index});
  if (config_.stream_entry == StreamEntry::kEarlier) {
    ops::GatherRows(context.stream, {.out = kept.previous, .from = all.previous, .index = index});
  }
  int32_t* ids = context.workspace->TakeArray<int32_t>(count);
  const auto bytes = [](const int32_t* words) {
    return reinterpret_cast<std::byte*>(const_cast<int32_t*>(words));
  };
  ops::GatherRows(context.stream,
                  {.out = {bytes(ids), DType::kI32, {count, 1}},
                   .from = TensorView{bytes(all.token_ids), DType::kI32, {all.count(), 1}},
                   .index = index});
  kept.token_ids = ids;
  return kept;
}

void DeepseekStreams::Collapse(const ForwardContext& context, const HyperWeights* hyper,
                               const Buffer* norm, StreamRows& rows) const {
  ops::HyperCollapseArgs args = {.out = rows.input,
                                 .streams = rows.streams,
                                 .norm = norm == nullptr ? nullptr : Floats(*norm),
                                 .norm_eps = config_.norm_eps};
  if (config_.stream_entry == StreamEntry::kEarlier) {
    args.pre = rows.previous.as<float>();
    args.pre_stride = ops::kHyperMixes;
  } else {
    args.weights = hyper->View(config_.norm_eps, config_.hyper_eps, config_.hyper_iterations);
  }
  ops::HyperCollapse(context.stream, *context.workspace, args);
}

void WriteHeadLogits(const ForwardContext& context, const TrunkWeights& trunk, int32_t vocab_size,
                     ConstTensorView x, float* logits) {
  WriteLogits(context, trunk.head, trunk.shards.vocab, vocab_size, x, logits);
}

}  // namespace hayate::models
