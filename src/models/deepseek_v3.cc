#include "models/deepseek_v3.h"

#include <algorithm>
#include <string>
#include <utility>

#include "base/check.h"
#include "base/error.h"
#include "base/log.h"
#include "models/detail/deepseek_v3_attention.h"
#include "models/detail/deepseek_v3_model.h"
#include "models/detail/model_facts.h"
#include "models/layers/activation.h"
#include "models/layers/head_logits.h"
#include "models/layers/moe.h"
#include "models/layers/rope_table.h"
#include "ops/embedding/embedding.h"
#include "ops/gather/copy_columns.h"
#include "ops/gather/gather_rows.h"
#include "ops/norm/rms_norm.h"

namespace hayate::models {
namespace {

const float* Floats(const Buffer& buffer) { return reinterpret_cast<const float*>(buffer.data()); }

class DeepseekV3Model final : public DeepseekV3Target {
 public:
  DeepseekV3Model(DeepseekV3Config config, ModelFacts facts, DeepseekV3Cache cache,
                  DeepseekV3Weights weights, RopeTable rope, const LoadOptions& options)
      : config_(std::move(config)),
        facts_(std::move(facts)),
        cache_(std::move(cache)),
        weights_(std::move(weights)),
        rope_(std::move(rope)),
        activations_(ActivationType(*options.device, options.precision)),
        latent_form_(options.latent_form),
        draft_(options.draft),
        weight_bytes_(weights_.bytes()) {}

  const ModelFacts& facts() const override { return facts_; }
  const CacheLayout& cache_layout() const override { return cache_.layout(); }
  int64_t page_bytes(int) const override { return cache_.page_bytes(); }
  int64_t weight_bytes() const override { return weight_bytes_; }
  const ops::ExpertWeights* experts(int layer) const override {
    return Layer(layer).moe ? &Layer(layer).moe->experts : nullptr;
  }
  int64_t feature_width() const override {
    return draft_ == DraftKind::kNextN ? config_.hidden_size : 0;
  }

  const DeepseekV3Config& config() const override { return config_; }
  const DeepseekV3Weights& weights() const override { return weights_; }
  const RopeTable& rope() const override { return rope_; }

  int64_t workspace_bytes(int64_t max_tokens, int64_t max_logits) const override {
    const int64_t h = config_.hidden_size, heads = HeadsWidth();
    const int64_t floats =
        max_tokens * (config_.rope_dim + 3 * h + heads) + max_logits * (3 * h + heads);
    const int64_t layer = std::max(
        {DeepseekV3AttentionLayer::WorkspaceBytes(config_, Layer(0).attention, max_tokens,
                                                  facts_.max_context),
         MlpWorkspaceBytes(max_tokens, h, weights_.ffn.size()),
         MoeLayerWorkspaceBytes(weights_.moe, weights_.num_experts, max_tokens,
                                weights_.num_dp_ranks),
         ops::MatmulWorkspaceBytes(max_tokens, heads), ops::MatmulWorkspaceBytes(max_logits, h)});
    return floats * static_cast<int64_t>(sizeof(float)) + layer +
           16 * static_cast<int64_t>(Workspace::kAlignment);
  }

  void Forward(const ForwardBatch& batch, const ForwardContext& context) override {
    DCHECK_EQ(batch.rows.size(), 1u);
    if (batch.num_tokens == 0) return JoinLayers(batch, context);
    Workspace& workspace = *context.workspace;
    const size_t mark = workspace.mark();
    const TensorView cos_sin = workspace.Take(DType::kF32, {batch.num_tokens, config_.rope_dim});
    ops::RopeRows(context.stream, {.out = cos_sin,
                                   .positions = batch.positions,
                                   .inv_freq = Floats(rope_.inv_freq),
                                   .attention_factor = rope_.attention_factor});
    const DeepseekV3Step step = {context, batch.rows[0], batch.positions, cos_sin.as<float>()};
    Rows rows = TakeRows(workspace, batch.num_tokens);
    ops::Embedding(context.stream,
                   {.out = rows.hidden, .ids = batch.token_ids, .table = weights_.embedding.view});
    ops::RmsNorm(context.stream, {.out = rows.normed,
                                  .x = rows.hidden,
                                  .weight = Floats(weights_.layers[0].attention_norm),
                                  .eps = config_.norm_eps});
    const int last = config_.num_layers - 1;
    for (int layer = 0; layer < last; ++layer) {
      Attend(step, layer, rows);
      FinishLayer(batch, context, layer, rows);
    }
    Attend(step, last, rows);
    if (batch.features != nullptr) {
      FinishLayer(batch, context, last, rows);
      const TensorView features{reinterpret_cast<std::byte*>(batch.features), DType::kF32,
                                rows.normed.shape};
      ops::CopyColumns(context.stream, {.out = features, .from = rows.normed});
      if (batch.num_logits > 0) rows = KeepLogitRows(batch, context, rows);
    } else if (batch.num_logits > 0) {
      rows = KeepLogitRows(batch, context, rows);
      FinishLayer(batch, context, last, rows);
    } else {
      JoinLayer(batch, context, last);
    }
    if (batch.num_logits > 0) {
      WriteLogits(context, weights_.head, weights_.vocab, config_.vocab_size, rows.normed,
                  batch.logits);
    }
    workspace.ResetTo(mark);
  }

 private:
  // The tensors that pass from layer to layer, for all tokens or for the rows with logits.
  struct Rows {
    TensorView hidden;  // [T, H] f32, the residual stream
    TensorView normed;  // [T, H]
    TensorView part;    // [T, H]: this rank's term of a sum over ranks, then the sum
    TensorView heads;   // [T, heads of this rank · Dv]
  };

  const DeepseekV3Layer& Layer(int layer) const {
    return weights_.layers[static_cast<size_t>(layer)];
  }
  int64_t HeadsWidth() const { return weights_.heads.size() * config_.value_dim; }

  Rows TakeRows(Workspace& workspace, int64_t count) const {
    const Shape whole{count, config_.hidden_size};
    return {.hidden = workspace.Take(DType::kF32, whole),
            .normed = workspace.Take(activations_, whole),
            .part = workspace.Take(activations_, whole),
            .heads = workspace.Take(activations_, {count, HeadsWidth()})};
  }

  // rows.heads = attention of rows.normed, which is appended.
  void Attend(const DeepseekV3Step& step, int index, Rows& rows) const {
    const DeepseekV3LayerCache cache = cache_.Layer(index, step.context.pools[0]);
    const DeepseekV3AttentionLayer attention(config_, Layer(index).attention, cache, latent_form_,
                                             facts_.max_context);
    attention.Append(step, rows.normed);
    attention.Attend(step, rows.normed, rows.heads);
  }

  // The layer from its output projection on, and the norm that the next one (or the head) begins
  // with.
  void FinishLayer(const ForwardBatch& batch, const ForwardContext& context, int index,
                   Rows& rows) const {
    const DeepseekV3Layer& layer = Layer(index);
    Apply(context.stream, *context.workspace, layer.attention.output, rows.heads, rows.part);
    AddSum(context, layer.ffn_norm, rows);
    if (layer.moe) {
      ApplyMoe(context, {.out = rows.part,
                         .x = rows.normed,
                         .config = &weights_.moe,
                         .weights = &*layer.moe,
                         .rows_per_rank = RowsPerRank(batch, index),
                         .layer = index});
    } else {
      ApplyMlp(context.stream, *context.workspace, layer.mlp, rows.normed, rows.part);
    }
    const bool last = index + 1 == config_.num_layers;
    AddSum(context, last ? weights_.final_norm : Layer(index + 1).attention_norm, rows);
  }

  // The last layer runs for the rows with logits alone, unless features are wanted of all.
  std::span<const int32_t> RowsPerRank(const ForwardBatch& batch, int layer) const {
    const bool logits_alone = layer + 1 == config_.num_layers && batch.features == nullptr;
    return logits_alone ? batch.logits_per_rank : batch.tokens_per_rank;
  }
  // A rank without rows takes part in what becomes of the others'.
  void JoinLayer(const ForwardBatch& batch, const ForwardContext& context, int layer) const {
    if (!Layer(layer).moe) return;
    JoinMoe(context, {.x = ConstTensorView{nullptr, activations_, {0, config_.hidden_size}},
                      .config = &weights_.moe,
                      .weights = &*Layer(layer).moe,
                      .rows_per_rank = RowsPerRank(batch, layer),
                      .layer = layer});
  }
  void JoinLayers(const ForwardBatch& batch, const ForwardContext& context) const {
    for (int layer = 0; layer < config_.num_layers; ++layer) JoinLayer(batch, context, layer);
  }

  // hidden += Σ_ranks part; normed = norm(hidden).
  void AddSum(const ForwardContext& context, const Buffer& norm, Rows& rows) const {
    context.group->AllReduce(context.stream, rows.part);
    ops::AddRmsNorm(context.stream, {.residual = rows.hidden,
                                     .x = rows.part,
                                     .out = rows.normed,
                                     .weight = Floats(norm),
                                     .eps = config_.norm_eps});
  }

  // After its attention, the last layer computes only what the logits need.
  Rows KeepLogitRows(const ForwardBatch& batch, const ForwardContext& context,
                     const Rows& all) const {
    if (batch.num_logits == batch.num_tokens) return all;
    const Rows kept = TakeRows(*context.workspace, batch.num_logits);
    const int32_t* index = batch.logits_index;
    ops::GatherRows(context.stream, {.out = kept.hidden, .from = all.hidden, .index = index});
    ops::GatherRows(context.stream, {.out = kept.normed, .from = all.normed, .index = index});
    if (HeadsWidth() > 0) {
      ops::GatherRows(context.stream, {.out = kept.heads, .from = all.heads, .index = index});
    }
    return kept;
  }

  const DeepseekV3Config config_;
  const ModelFacts facts_;
  const DeepseekV3Cache cache_;
  const DeepseekV3Weights weights_;
  const RopeTable rope_;
  const DType activations_;
  const ops::LatentForm latent_form_;
  const DraftKind draft_;
  const int64_t weight_bytes_;
};

// The layers behind the last one: a drafter, or left in the file.
Status CheckDraftLayers(const weights::Checkpoint& checkpoint, const DeepseekV3Config& config,
                        const LoadOptions& options) {
  const std::string first = "model.layers." + std::to_string(config.num_layers) + ".eh_proj.weight";
  const bool found = checkpoint.Has(first);
  if (options.draft != DraftKind::kNextN) {
    if (found && options.rank == 0) {
      LOG_INFO("{}: the {} layers that predict further tokens are not loaded",
               checkpoint.path().string(), std::max(1, config.num_draft_layers));
    }
    return OkStatus();
  }
  if (found) return OkStatus();
  return Error(ErrorCode::kUnsupported, "MTP drafts want a tensor '{}', which is not there", first);
}

}  // namespace

Result<std::unique_ptr<Model>> LoadDeepseekV3(const weights::Checkpoint& checkpoint,
                                              const DeepseekV3Config& config,
                                              const LoadOptions& options) {
  RETURN_IF_ERROR(CheckDraftLayers(checkpoint, config, options));
  ASSIGN_OR_RETURN(const int32_t max_context, ContextOf(options, config.trained_context));
  ASSIGN_OR_RETURN(const ops::RopeFrequencies frequencies,
                   ops::ComputeRopeFrequencies(config.rope, max_context));
  ASSIGN_OR_RETURN(RopeTable rope, PlaceFrequencies(*options.device, frequencies));
  ASSIGN_OR_RETURN(DeepseekV3Cache cache,
                   DeepseekV3Cache::Plan(config, options, config.num_layers));
  ASSIGN_OR_RETURN(DeepseekV3Weights weights, LoadDeepseekV3Weights(checkpoint, config, options));
  return std::unique_ptr<Model>(std::make_unique<DeepseekV3Model>(
      config, FactsOf(checkpoint, config, max_context), std::move(cache), std::move(weights),
      std::move(rope), options));
}

}  // namespace hayate::models
