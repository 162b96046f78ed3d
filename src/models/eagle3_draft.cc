#include "models/eagle3_draft.h"

#include <algorithm>
#include <span>
#include <utility>

#include "base/error.h"
#include "models/detail/deepseek_draft_rows.h"
#include "models/detail/dense_target.h"
#include "models/detail/eagle3_weights.h"
#include "models/layers/activation.h"
#include "models/layers/rope_table.h"
#include "ops/drafting/draft_logits.h"
#include "ops/embedding/embedding.h"
#include "ops/gather/copy_columns.h"
#include "ops/gather/gather_rows.h"
#include "ops/norm/rms_norm.h"
#include "ops/zero/zero.h"

namespace hayate::models {
namespace {

constexpr auto kFloat = static_cast<int64_t>(sizeof(float));

const float* Floats(const Buffer& buffer) { return reinterpret_cast<const float*>(buffer.data()); }

class Eagle3Draft final : public DraftModel {
 public:
  Eagle3Draft(const DenseTarget& target, Eagle3Config config, Eagle3Weights weights, RopeTable rope,
              Buffer sources, const LoadOptions& options)
      : target_(target),
        config_(std::move(config)),
        weights_(std::move(weights)),
        rope_(std::move(rope)),
        sources_(std::move(sources)),
        activations_(ActivationType(*options.device, options.precision)),
        max_drafts_(options.max_drafts) {
    const auto page_bytes = [&](int64_t kv_heads) {
      return ops::KvLayerPageBytes(options.kv_dtype, options.page_tokens,
                                   static_cast<int32_t>(kv_heads), config_.layer.head_dim);
    };
    const auto own_heads = weights_.shape.heads.kv.size();
    page_bytes_ = own_heads == 0 ? 0 : page_bytes(own_heads);
    cache_ = {.page_stride = page_bytes_,
              .dtype = options.kv_dtype,
              .page_tokens = options.page_tokens,
              .num_kv_heads = static_cast<int32_t>(own_heads),
              .head_dim = config_.layer.head_dim};
    int64_t most = 0;
    for (int rank = 0; rank < options.num_ranks; ++rank) {
      most = std::max(most, SplitHeads(config_.layer.num_heads, config_.layer.num_kv_heads,
                                       weights_.heads_unit, rank, options.num_ranks)
                                .kv.size());
    }
    groups_.push_back(
        {.name = "draft_kv", .kind = CacheKind::kFull, .page_bytes = page_bytes(most)});
  }

  const std::vector<CacheGroup>& cache_groups() const override { return groups_; }
  int64_t page_bytes(int) const override { return page_bytes_; }
  int32_t max_drafts() const override { return max_drafts_; }
  bool has_confidence() const override { return false; }
  int64_t weight_bytes() const override {
    return weights_.bytes() + static_cast<int64_t>(sources_.size());
  }

  int64_t workspace_bytes(int64_t max_tokens, int64_t max_proposals) const override {
    const int64_t h = hidden(), states = target_.feature_width();
    // Of all tokens: states, what joins them, [embedding; state], embeddings, rotations.
    const int64_t all = max_tokens * (states + 4 * h + config_.layer.rope.rotary_dim);
    const int64_t kept = max_proposals * (5 * h + weights_.shape.q_width() + 2 +
                                          config_.layer.rope.rotary_dim + weights_.vocab.size());
    const int64_t inner =
        std::max({AttentionWorkspaceBytes(weights_.shape, max_tokens, 2 * h),
                  ops::MatmulWorkspaceBytes(max_tokens, states),
                  ops::MatmulWorkspaceBytes(max_proposals, weights_.shape.q_width()),
                  MlpWorkspaceBytes(max_proposals, h, weights_.mlp.down.k())});
    return (all + kept) * kFloat + inner + ProposalBytes(max_proposals) +
           24 * static_cast<int64_t>(Workspace::kAlignment);
  }

  void Advance(const DraftBatch& batch, const ForwardContext& context) override;
  void Next(int32_t i, const int32_t* tokens, float* logits, float* confidences,
            const ForwardContext& context) override;

 private:
  struct Rows {
    // [N, H] f32: the residual stream, at the end what the next guess begins with.
    TensorView state;
    TensorView joined;  // [N, 2H]
    TensorView normed;  // [N, H]
    TensorView part;    // [N, H]
    TensorView heads;   // [N, q_width]
  };

  int64_t hidden() const { return config_.layer.hidden_size; }
  Rows TakeRows(Workspace& workspace, int64_t count) const {
    const Shape whole{count, hidden()};
    return {.state = workspace.Take(DType::kF32, whole),
            .joined = workspace.Take(activations_, {count, 2 * hidden()}),
            .normed = workspace.Take(activations_, whole),
            .part = workspace.Take(activations_, whole),
            .heads = workspace.Take(activations_, {count, weights_.shape.q_width()})};
  }
  ops::KvLayerView Cache(const ForwardContext& context) const {
    ops::KvLayerView cache = cache_;
    cache.base = context.pools[0];
    return cache;
  }
  AttentionStep StepAt(const ForwardContext& context, const int32_t* positions,
                       int64_t count) const {
    const TensorView cos_sin =
        context.workspace->Take(DType::kF32, {count, config_.layer.rope.rotary_dim});
    ops::RopeRows(context.stream, {.out = cos_sin,
                                   .positions = positions,
                                   .inv_freq = Floats(rope_.inv_freq),
                                   .attention_factor = rope_.attention_factor});
    return {positions, cos_sin.as<float>()};
  }
  void Norm(const ForwardContext& context, const Buffer& weight, const TensorView& x,
            const TensorView& out) const {
    ops::RmsNorm(context.stream,
                 {.out = out, .x = x, .weight = Floats(weight), .eps = config_.layer.norm_eps});
  }

  // positions_ and lengths of the proposing rows, for their entry of guess i.
  void PlaceProposals(Stream stream, int32_t i);
  void JoinStates(const ForwardContext& context, const TensorView& states,
                  const TensorView& state) const;
  void Enter(const ForwardContext& context, const int32_t* token_ids, const TensorView& state,
             const TensorView& joined) const;
  void Finish(const ForwardContext& context) const;
  void AddSum(const ForwardContext& context, const Buffer& norm) const;
  void WriteLogits(const ForwardContext& context, float* logits) const;

  const DenseTarget& target_;
  const Eagle3Config config_;
  const Eagle3Weights weights_;
  const RopeTable rope_;
  const Buffer sources_;  // as ops::MapLogits takes them; empty where the vocabularies are one
  const DType activations_;
  const int32_t max_drafts_;
  std::vector<CacheGroup> groups_;
  ops::KvLayerView cache_;  // without its base
  int64_t page_bytes_ = 0;

  // From Advance to the last Next, in the step's workspace.
  ProposalRows proposals_;
  ops::AttentionRows proposal_rows_;
  int32_t* kv_len_ = nullptr;     // [N]
  int32_t* positions_ = nullptr;  // [N] of the latest entry
  Rows rows_;
};

void Eagle3Draft::Advance(const DraftBatch& batch, const ForwardContext& context) {
  Workspace& workspace = *context.workspace;
  const int64_t h = hidden(), tokens = batch.num_tokens, states = target_.feature_width();
  proposals_ = TakeProposals(context.stream, batch, workspace);
  proposal_rows_ = TakeProposalRows(context.stream, batch, batch.rows[0], 1, 0, workspace);
  kv_len_ = workspace.TakeArray<int32_t>(proposals_.count);
  positions_ = workspace.TakeArray<int32_t>(proposals_.count);
  rows_ = TakeRows(workspace, proposals_.count);
  const size_t mark = workspace.mark();
  const TensorView features = workspace.Take(DType::kF32, {tokens, states});
  const TensorView state = workspace.Take(DType::kF32, {tokens, h});
  const TensorView joined = workspace.Take(activations_, {tokens, 2 * h});
  GatherFeatures(context.stream, batch, features);
  JoinStates(context, features, state);
  Enter(context, batch.next_ids, state, joined);
  AppendKeysValues(context.stream, workspace, weights_.shape, weights_.attention,
                   StepAt(context, batch.positions, tokens), batch.rows[0], Cache(context), joined);
  if (proposals_.count > 0) {
    PlaceProposals(context.stream, 0);
    const int32_t* last = proposals_.last;
    ops::GatherRows(context.stream, {.out = rows_.state, .from = state, .index = last});
    ops::GatherRows(context.stream, {.out = rows_.joined, .from = joined, .index = last});
    Finish(context);
  }
  workspace.ResetTo(mark);
}

void Eagle3Draft::Next(int32_t i, const int32_t* tokens, float* logits, float*,
                       const ForwardContext& context) {
  if (proposals_.count == 0) return;
  if (i > 0) {
    PlaceProposals(context.stream, i);
    Enter(context, tokens, rows_.state, rows_.joined);
    Finish(context);
  }
  WriteLogits(context, logits);
}

void Eagle3Draft::PlaceProposals(Stream stream, int32_t i) {
  ops::ShiftPositions(stream, {.from = proposals_.positions,
                               .count = proposals_.count,
                               .by = i,
                               .positions = positions_,
                               .kv_len = kv_len_});
  proposal_rows_.kv_len = kv_len_;
}

// state = fc · states: every rank its rows, which add up to the whole.
void Eagle3Draft::JoinStates(const ForwardContext& context, const TensorView& states,
                             const TensorView& state) const {
  ops::Zero(context.stream, state);
  if (weights_.fc.weights) {
    const TensorView rows{state.data + weights_.fc_rows.begin * kFloat, DType::kF32,
                          Shape{state.shape[0], weights_.fc_rows.size()}};
    ops::Matmul(context.stream, *context.workspace,
                {.out = rows, .x = states, .w = &*weights_.fc.weights, .out_row_stride = hidden()});
  }
  context.group->AllReduce(context.stream, state);
}

// joined = [norm(embedding); norm(state)].
void Eagle3Draft::Enter(const ForwardContext& context, const int32_t* token_ids,
                        const TensorView& state, const TensorView& joined) const {
  Workspace& workspace = *context.workspace;
  const size_t mark = workspace.mark();
  const int64_t count = state.shape[0], h = hidden();
  const TensorView tokens = workspace.Take(DType::kF32, {count, h});
  const TensorView normed =
      config_.norm_before_residual ? state : workspace.Take(DType::kF32, {count, h});
  const EmbeddingTable& table =
      weights_.embedding.view.data != nullptr ? weights_.embedding : target_.embedding();
  ops::Embedding(context.stream, {.out = tokens, .ids = token_ids, .table = table.view});
  Norm(context, weights_.token_norm, tokens, tokens);
  Norm(context, weights_.state_norm, state, normed);
  for (const auto& [x, column] : {std::pair(tokens, int64_t{0}), std::pair(normed, h)}) {
    const TensorView to{joined.data + RowBytes(joined.dtype, column), joined.dtype, x.shape};
    ops::CopyColumns(context.stream, {.out = to, .out_row_stride = 2 * h, .from = x});
  }
  workspace.ResetTo(mark);
}

// The layer of the proposing rows at positions_, whose entries it writes.
void Eagle3Draft::Finish(const ForwardContext& context) const {
  Workspace& workspace = *context.workspace;
  const size_t mark = workspace.mark();
  AttendHeads(context.stream, workspace, weights_.shape, weights_.attention,
              StepAt(context, positions_, proposals_.count), proposal_rows_, Cache(context),
              rows_.joined, rows_.heads);
  Apply(context.stream, workspace, weights_.attention.output, rows_.heads, rows_.part);
  AddSum(context, weights_.mlp_norm);
  ApplyMlp(context.stream, workspace, weights_.mlp, rows_.normed, rows_.part);
  AddSum(context, weights_.final_norm);
  workspace.ResetTo(mark);
}

// state += Σ_ranks part; normed = norm(state).
void Eagle3Draft::AddSum(const ForwardContext& context, const Buffer& norm) const {
  context.group->AllReduce(context.stream, rows_.part);
  ops::AddRmsNorm(context.stream, {.residual = rows_.state,
                                   .x = rows_.part,
                                   .out = rows_.normed,
                                   .weight = Floats(norm),
                                   .eps = config_.layer.norm_eps});
}

void Eagle3Draft::WriteLogits(const ForwardContext& context, float* logits) const {
  Workspace& workspace = *context.workspace;
  const size_t mark = workspace.mark();
  const int64_t vocab = target_.facts().vocab_size, count = proposals_.count;
  const int64_t width = weights_.vocab.size();
  const bool mapped = sources_.size() > 0;
  const TensorView mapped_slice = workspace.Take(DType::kF32, {mapped ? count : 0, width});
  if (weights_.head.weights) {
    const TensorView slice =
        mapped ? mapped_slice
               : TensorView{reinterpret_cast<std::byte*>(logits + weights_.vocab.begin),
                            DType::kF32, Shape{count, width}};
    ops::Matmul(context.stream, workspace,
                {.out = slice,
                 .x = rows_.normed,
                 .w = &*weights_.head.weights,
                 .out_row_stride = mapped ? width : vocab});
  }
  if (mapped) {
    const TensorView all{reinterpret_cast<std::byte*>(logits), DType::kF32, Shape{count, vocab}};
    ops::MapLogits(context.stream, {.logits = all,
                                    .from = mapped_slice,
                                    .source = reinterpret_cast<const int32_t*>(sources_.data())});
  }
  workspace.ResetTo(mark);
}

// By token of the target the column of this rank's logits. What the head has no token for is the
// first rank's to write.
Result<Buffer> PlaceSources(const Eagle3Weights& weights, int64_t vocab_size,
                            const LoadOptions& options) {
  if (weights.target_ids.empty()) return Buffer();
  constexpr int32_t kOthers = ops::MapLogitsArgs::kOthers;
  std::vector<int32_t> sources(static_cast<size_t>(vocab_size),
                               options.rank == 0 ? ops::MapLogitsArgs::kNoSource : kOthers);
  const auto ids = std::span(weights.target_ids);
  for (size_t id = 0; id < ids.size(); ++id) {
    const int64_t column = static_cast<int64_t>(id) - weights.vocab.begin;
    const bool own = column >= 0 && column < weights.vocab.size();
    sources[static_cast<size_t>(ids[id])] = own ? static_cast<int32_t>(column) : kOthers;
  }
  const size_t bytes = sources.size() * sizeof(int32_t);
  ASSIGN_OR_RETURN(Buffer placed, Buffer::Allocate(*options.device, bytes));
  options.device->Upload(placed.data(), sources.data(), bytes);
  return placed;
}

}  // namespace

Result<std::unique_ptr<DraftModel>> LoadEagle3Draft(const weights::Checkpoint& head,
                                                    const LoadOptions& options,
                                                    const Model& target) {
  const auto* dense = dynamic_cast<const DenseTarget*>(&target);
  if (dense == nullptr || dense->feature_width() == 0) {
    return Error(ErrorCode::kUnsupported, "EAGLE-3 heads draft for {}",
                 "Llama, Mistral, Qwen2, Qwen3, their mixtures and GPT-OSS");
  }
  ASSIGN_OR_RETURN(Eagle3Config config, ReadEagle3Config(head));
  if (config.layer.vocab_size != target.facts().vocab_size) {
    return Error(ErrorCode::kInvalidArgument,
                 "a vocabulary of {} tokens; the model it drafts for has {}",
                 config.layer.vocab_size, target.facts().vocab_size);
  }
  ASSIGN_OR_RETURN(const ops::RopeFrequencies frequencies,
                   ops::ComputeRopeFrequencies(config.layer.rope, target.facts().max_context));
  ASSIGN_OR_RETURN(RopeTable rope, PlaceFrequencies(*options.device, frequencies));
  ASSIGN_OR_RETURN(Eagle3Weights weights, LoadEagle3Weights(head, config, options, target.facts()));
  if (weights.num_states * target.facts().hidden_size != target.feature_width()) {
    return Error(ErrorCode::kDataLoss, "fc.weight joins {} states; the config names {} layers",
                 weights.num_states, target.feature_width() / target.facts().hidden_size);
  }
  ASSIGN_OR_RETURN(Buffer sources, PlaceSources(weights, target.facts().vocab_size, options));
  return std::unique_ptr<DraftModel>(std::make_unique<Eagle3Draft>(
      *dense, std::move(config), std::move(weights), std::move(rope), std::move(sources), options));
}

}  // namespace hayate::models
