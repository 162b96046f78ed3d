#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/error.h"
#include "models/deepseek_draft.h"
#include "models/detail/deepseek_draft_rows.h"
#include "models/detail/deepseek_v3_attention.h"
#include "models/detail/deepseek_v3_model.h"
#include "models/layers/activation.h"
#include "models/layers/head_logits.h"
#include "ops/embedding/embedding.h"
#include "ops/gather/copy_columns.h"
#include "ops/gather/gather_rows.h"
#include "ops/norm/rms_norm.h"

namespace hayate::models {
namespace {

constexpr auto kFloat = static_cast<int64_t>(sizeof(float));

const float* Floats(const Buffer& buffer) { return reinterpret_cast<const float*>(buffer.data()); }

class DeepseekV3Mtp final : public DraftModel {
 public:
  DeepseekV3Mtp(const DeepseekV3Target& target, DeepseekV3Draft weights, DeepseekV3Cache cache,
                const LoadOptions& options)
      : target_(target),
        config_(target.config()),
        weights_(std::move(weights)),
        cache_(std::move(cache)),
        groups_(cache_.layout().groups),
        activations_(ActivationType(*options.device, options.precision)),
        latent_form_(options.latent_form),
        max_drafts_(options.max_drafts) {
    groups_[0].name = "draft_latent";
  }

  const std::vector<CacheGroup>& cache_groups() const override { return groups_; }
  int64_t page_bytes(int) const override { return cache_.page_bytes(); }
  int32_t max_drafts() const override { return max_drafts_; }
  bool has_confidence() const override { return false; }
  int64_t weight_bytes() const override { return weights_.bytes(); }

  int64_t workspace_bytes(int64_t max_tokens, int64_t max_proposals) const override {
    const int64_t h = config_.hidden_size;
    // Of all tokens: states, embeddings, both joined, hidden and normed, rotations.
    const int64_t all = max_tokens * (6 * h + config_.rope_dim);
    const int64_t kept = max_proposals * (4 * h + HeadsWidth() + config_.rope_dim + 1);
    const int64_t inner =
        std::max({DeepseekV3AttentionLayer::WorkspaceBytes(config_, weights_.layer.attention,
                                                           max_tokens, target_.facts().max_context),
                  ops::MoeWorkspaceBytes(weights_.moe, weights_.num_experts, max_proposals),
                  ops::MatmulWorkspaceBytes(max_tokens, 2 * h),
                  ops::MatmulWorkspaceBytes(max_proposals, HeadsWidth())});
    return (all + kept) * kFloat + inner + ProposalBytes(max_proposals) +
           24 * static_cast<int64_t>(Workspace::kAlignment);
  }

  void Advance(const DraftBatch& batch, const ForwardContext& context) override {
    Workspace& workspace = *context.workspace;
    const int64_t h = config_.hidden_size, tokens = batch.num_tokens;
    proposals_ = TakeProposals(context.stream, batch, workspace);
    proposal_rows_ = TakeProposalRows(context.stream, batch, batch.rows[0], 1, 0, workspace);
    kv_len_ = workspace.TakeArray<int32_t>(proposals_.count);
    positions_ = workspace.TakeArray<int32_t>(proposals_.count);
    rows_ = TakeRows(workspace, proposals_.count);
    const size_t mark = workspace.mark();
    const TensorView states = workspace.Take(DType::kF32, {tokens, h});
    const TensorView hidden = workspace.Take(DType::kF32, {tokens, h});
    const TensorView normed = workspace.Take(activations_, {tokens, h});
    GatherFeatures(context.stream, batch, states);
    Enter(context, batch.rows[0], batch.positions, states, batch.next_ids, hidden, normed);
    if (proposals_.count > 0) {
      PlaceProposals(context.stream, 0);
      const int32_t* last = proposals_.last;
      ops::GatherRows(context.stream, {.out = rows_.hidden, .from = hidden, .index = last});
      ops::GatherRows(context.stream, {.out = rows_.normed, .from = normed, .index = last});
      Finish(context);
    }
    workspace.ResetTo(mark);
  }

  void Next(int32_t i, const int32_t* tokens, float* logits, float*,
            const ForwardContext& context) override {
    if (proposals_.count == 0) return;
    Workspace& workspace = *context.workspace;
    const size_t mark = workspace.mark();
    if (i > 0) {
      const TensorView states = workspace.Take(DType::kF32, rows_.normed.shape);
      ops::CopyColumns(context.stream, {.out = states, .from = rows_.normed});
      PlaceProposals(context.stream, i);
      Enter(context, proposal_rows_, positions_, states, tokens, rows_.hidden, rows_.normed);
      Finish(context);
    }
    const DeepseekV3Weights& target = target_.weights();
    WriteLogits(context, target.head, target.vocab, config_.vocab_size, rows_.normed, logits);
    workspace.ResetTo(mark);
  }

 private:
  struct Rows {
    TensorView hidden;  // [N, H] f32
    TensorView normed;  // [N, H]: at the end what the next guess takes in the trunk's place
    TensorView part;    // [N, H]
    TensorView heads;   // [N, heads of this rank · Dv]
  };

  int64_t HeadsWidth() const {
    return int64_t{weights_.layer.attention.projections.num_heads} * config_.value_dim;
  }
  Rows TakeRows(Workspace& workspace, int64_t count) const {
    const Shape whole{count, config_.hidden_size};
    return {.hidden = workspace.Take(DType::kF32, whole),
            .normed = workspace.Take(activations_, whole),
            .part = workspace.Take(activations_, whole),
            .heads = workspace.Take(activations_, {count, HeadsWidth()})};
  }
  // positions_ and lengths of the proposing rows, for their entry of guess i.
  void PlaceProposals(Stream stream, int32_t i) {
    ops::ShiftPositions(stream, {.from = proposals_.positions,
                                 .count = proposals_.count,
                                 .by = i,
                                 .positions = positions_,
                                 .kv_len = kv_len_});
    proposal_rows_.kv_len = kv_len_;
  }

  DeepseekV3AttentionLayer Attention(const DeepseekV3LayerCache& cache) const {
    return {config_, weights_.layer.attention, cache, latent_form_, target_.facts().max_context};
  }
  const float* TakeRotation(const ForwardContext& context, const int32_t* positions,
                            int64_t count) const {
    const TensorView cos_sin = context.workspace->Take(DType::kF32, {count, config_.rope_dim});
    ops::RopeRows(context.stream, {.out = cos_sin,
                                   .positions = positions,
                                   .inv_freq = Floats(target_.rope().inv_freq),
                                   .attention_factor = target_.rope().attention_factor});
    return cos_sin.as<float>();
  }

  // hidden = join · [norm(embedding); norm(states)]; normed = norm(hidden), which is appended.
  void Enter(const ForwardContext& context, const ops::AttentionRows& rows,
             const int32_t* positions, const TensorView& states, const int32_t* token_ids,
             const TensorView& hidden, const TensorView& normed) const {
    Workspace& workspace = *context.workspace;
    const size_t mark = workspace.mark();
    const int64_t count = states.shape[0], h = config_.hidden_size;
    const TensorView tokens = workspace.Take(DType::kF32, {count, h});
    const TensorView both = workspace.Take(DType::kF32, {count, 2 * h});
    ops::Embedding(context.stream,
                   {.out = tokens, .ids = token_ids, .table = target_.weights().embedding.view});
    for (const auto& [x, norm] :
         {std::pair(tokens, &weights_.token_norm), std::pair(states, &weights_.state_norm)}) {
      ops::RmsNorm(context.stream,
                   {.out = x, .x = x, .weight = Floats(*norm), .eps = config_.norm_eps});
    }
    for (const auto& [x, column] : {std::pair(tokens, int64_t{0}), std::pair(states, h)}) {
      const TensorView to{both.data + RowBytes(DType::kF32, column), DType::kF32, x.shape};
      ops::CopyColumns(context.stream, {.out = to, .out_row_stride = 2 * h, .from = x});
    }
    Apply(context.stream, workspace, weights_.join, both, hidden);
    ops::RmsNorm(context.stream, {.out = normed,
                                  .x = hidden,
                                  .weight = Floats(weights_.layer.attention_norm),
                                  .eps = config_.norm_eps});
    const DeepseekV3LayerCache cache = cache_.Layer(0, context.pools[0]);
    Attention(cache).Append({context, rows, positions, TakeRotation(context, positions, count)},
                            normed);
    workspace.ResetTo(mark);
  }

  // The rest of the layer, for the proposing rows at positions_.
  void Finish(const ForwardContext& context) const {
    Workspace& workspace = *context.workspace;
    const size_t mark = workspace.mark();
    const DeepseekV3Layer& layer = weights_.layer;
    const DeepseekV3LayerCache cache = cache_.Layer(0, context.pools[0]);
    Attention(cache).Attend(
        {context, proposal_rows_, positions_, TakeRotation(context, positions_, proposals_.count)},
        rows_.normed, rows_.heads);
    Apply(context.stream, workspace, layer.attention.output, rows_.heads, rows_.part);
    AddSum(context, layer.ffn_norm);
    ops::Moe(
        context.stream, workspace,
        {.out = rows_.part, .x = rows_.normed, .config = &weights_.moe, .weights = &*layer.moe});
    AddSum(context, weights_.final_norm);
    workspace.ResetTo(mark);
  }

  // hidden += Σ_ranks part; normed = norm(hidden).
  void AddSum(const ForwardContext& context, const Buffer& norm) const {
    context.group->AllReduce(context.stream, rows_.part);
    ops::AddRmsNorm(context.stream, {.residual = rows_.hidden,
                                     .x = rows_.part,
                                     .out = rows_.normed,
                                     .weight = Floats(norm),
                                     .eps = config_.norm_eps});
  }

  const DeepseekV3Target& target_;
  const DeepseekV3Config& config_;
  const DeepseekV3Draft weights_;
  const DeepseekV3Cache cache_;
  std::vector<CacheGroup> groups_;
  const DType activations_;
  const ops::LatentForm latent_form_;
  const int32_t max_drafts_;

  // From Advance to the last Next, in the step's workspace.
  ProposalRows proposals_;
  ops::AttentionRows proposal_rows_;
  int32_t* kv_len_ = nullptr;     // [N]
  int32_t* positions_ = nullptr;  // [N] of the latest entry
  Rows rows_;
};

}  // namespace

Result<std::unique_ptr<DraftModel>> LoadDeepseekV3Mtp(const weights::Checkpoint& checkpoint,
                                                      const LoadOptions& options,
                                                      const Model& target) {
  const auto* model = dynamic_cast<const DeepseekV3Target*>(&target);
  CHECK(model != nullptr && model->feature_width() > 0)
      << "the target was loaded for another drafter";
  ASSIGN_OR_RETURN(DeepseekV3Cache cache, DeepseekV3Cache::Plan(model->config(), options, 1));
  ASSIGN_OR_RETURN(DeepseekV3Draft weights,
                   LoadDeepseekV3Draft(checkpoint, model->config(), options));
  return std::unique_ptr<DraftModel>(
      std::make_unique<DeepseekV3Mtp>(*model, std::move(weights), std::move(cache), options));
}

}  // namespace hayate::models
