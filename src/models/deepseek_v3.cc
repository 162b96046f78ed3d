#include "models/deepseek_v3.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "base/check.h"
#include "base/log.h"
#include "models/detail/deepseek_v3_cache.h"
#include "models/detail/deepseek_v3_weights.h"
#include "models/detail/model_facts.h"
#include "models/layers/moe.h"
#include "ops/embedding/embedding.h"
#include "ops/gather/gather_rows.h"
#include "ops/indexer/indexer.h"
#include "ops/norm/layer_norm.h"
#include "ops/norm/rms_norm.h"
#include "ops/sparse_attention/head_rotation.h"

namespace hayate::models {
namespace {

constexpr float kIndexNormEps = 1e-6f;

const float* Floats(const Buffer& buffer) { return reinterpret_cast<const float*>(buffer.data()); }

// What a step gives to every layer.
struct Step {
  const ForwardBatch& batch;
  const ForwardContext& context;
  const float* cos_sin;  // [T, R]

  const ops::AttentionRows& rows() const { return batch.rows[0]; }
  Stream stream() const { return context.stream; }
  Workspace& workspace() const { return *context.workspace; }
  std::byte* pool() const { return context.pools[0]; }
};

// The tokens that each token attends to; no list: all.
struct Selection {
  const int32_t* tokens = nullptr;  // [T, stride], ascending
  const int32_t* counts = nullptr;
  int64_t stride = 0;
};

class DeepseekV3Model final : public Model {
 public:
  DeepseekV3Model(DeepseekV3Config config, ModelFacts facts, DeepseekV3Cache cache,
                  DeepseekV3Weights weights, ops::RopeFrequencies frequencies,
                  ops::LatentForm latent_form)
      : config_(std::move(config)),
        facts_(std::move(facts)),
        cache_(std::move(cache)),
        weights_(std::move(weights)),
        frequencies_(std::move(frequencies)),
        latent_form_(latent_form),
        weight_bytes_(weights_.bytes()) {}

  const ModelFacts& facts() const override { return facts_; }
  const CacheLayout& cache_layout() const override { return cache_.layout(); }
  int64_t page_bytes(int) const override { return cache_.page_bytes(); }
  int64_t weight_bytes() const override { return weight_bytes_; }

  int64_t workspace_bytes(int64_t max_tokens, int64_t max_logits) const override {
    const int64_t h = config_.hidden_size, heads = HeadsWidth();
    const int64_t floats =
        max_tokens * (config_.rope_dim + 3 * h + heads) + max_logits * (3 * h + heads);
    const int64_t layer = std::max(
        {AttentionBytes(max_tokens), MlpWorkspaceBytes(max_tokens, h, weights_.ffn.size()),
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
                                   .inv_freq = frequencies_.inv_freq.data(),
                                   .attention_factor = frequencies_.attention_factor});
    const Step step = {batch, context, cos_sin.as<float>()};
    Rows rows = TakeRows(workspace, batch.num_tokens);
    ops::Embedding(context.stream,
                   {.out = rows.hidden, .ids = batch.token_ids, .table = weights_.embedding.view});
    ops::RmsNorm(context.stream, {.out = rows.normed,
                                  .x = rows.hidden,
                                  .weight = Floats(weights_.layers[0].attention_norm),
                                  .eps = config_.norm_eps});
    for (int layer = 0; layer < config_.num_layers; ++layer) {
      Attend(step, layer, rows);
      if (layer + 1 == config_.num_layers) {
        if (batch.num_logits == 0) {
          JoinLayer(batch, context, layer);
          break;
        }
        rows = KeepLogitRows(step, rows);
      }
      FinishLayer(batch, context, layer, rows);
    }
    if (batch.num_logits > 0) WriteLogits(batch, context, rows);
    workspace.ResetTo(mark);
  }

 private:
  // The tensors that pass from layer to layer, for all tokens or for the rows with logits.
  struct Rows {
    TensorView hidden;  // [T, H], the residual stream
    TensorView normed;  // [T, H]
    TensorView part;    // [T, H]: this rank's term of a sum over ranks, then the sum
    TensorView heads;   // [T, heads of this rank · Dv]
  };

  const DeepseekV3Layer& Layer(int layer) const {
    return weights_.layers[static_cast<size_t>(layer)];
  }
  int64_t HeadsWidth() const { return weights_.heads.size() * config_.value_dim; }
  int64_t QueryDim() const { return config_.nope_dim + config_.rope_dim; }

  Rows TakeRows(Workspace& workspace, int64_t count) const {
    const Shape whole{count, config_.hidden_size};
    return {.hidden = workspace.Take(DType::kF32, whole),
            .normed = workspace.Take(DType::kF32, whole),
            .part = workspace.Take(DType::kF32, whole),
            .heads = workspace.Take(DType::kF32, {count, HeadsWidth()})};
  }

  int64_t AttentionBytes(int64_t max_tokens) const {
    const int64_t h = config_.hidden_size, width = config_.latent_dim + config_.rope_dim;
    int64_t floats =
        max_tokens * (2 * int64_t{config_.q_rank} + weights_.heads.size() * QueryDim() + width);
    int64_t inner =
        std::max(ops::LatentAttentionWorkspaceBytes(Layer(0).attention.projections, max_tokens),
                 2 * width * static_cast<int64_t>(sizeof(float)) + 2 * 256);
    if (config_.indexer) {
      const int64_t index = int64_t{config_.indexer->num_heads} * config_.indexer->head_dim;
      floats += max_tokens * (index + config_.indexer->head_dim + config_.indexer->num_heads +
                              SelectionStride() + 1);
      inner = std::max(inner,
                       ops::IndexerWorkspaceBytes(facts_.max_context, config_.indexer->head_dim));
    }
    const int64_t products =
        std::max(ops::MatmulWorkspaceBytes(max_tokens, h),
                 ops::MatmulWorkspaceBytes(max_tokens, std::max(config_.q_rank, 1)));
    return floats * static_cast<int64_t>(sizeof(float)) + inner + products +
           12 * static_cast<int64_t>(Workspace::kAlignment);
  }

  // rows.heads = attention of rows.normed, whose latents (and index keys) were appended.
  void Attend(const Step& step, int index, Rows& rows) const {
    const size_t mark = step.workspace().mark();
    const DeepseekV3Attention& layer = Layer(index).attention;
    const int64_t tokens = rows.normed.rows();
    const ops::LatentLayerView cache = cache_.Latents(index, step.pool());
    const TensorView kv =
        step.workspace().Take(DType::kF32, {tokens, config_.latent_dim + config_.rope_dim});
    Apply(step.stream(), step.workspace(), layer.kv_down, rows.normed, kv);
    ops::LatentAppend(step.stream(), step.workspace(),
                      {.x = kv,
                       .norm = Floats(layer.kv_norm),
                       .norm_eps = config_.norm_eps,
                       .cos_sin = step.cos_sin,
                       .positions = step.batch.positions,
                       .cache = cache,
                       .rows = step.rows()});
    const ConstTensorView low = LowRank(step, layer, rows.normed);
    const Selection selection = layer.indexer ? Select(step, index, rows.normed, low) : Selection();
    if (weights_.heads.size() > 0) {
      const TensorView q = Queries(step, layer, low);
      ops::LatentAttention(
          step.stream(), step.workspace(),
          {.out = {rows.heads.data,
                   DType::kF32,
                   {tokens, weights_.heads.size(), config_.value_dim}},
           .q = q,
           .positions = step.batch.positions,
           .cache = cache,
           .rows = step.rows(),
           .scale = config_.softmax_scale,
           .projections = &layer.projections,
           .form = selection.tokens == nullptr ? latent_form_ : ops::LatentForm::kAbsorbed,
           .selected = selection.tokens,
           .selected_count = selection.counts,
           .selected_stride = selection.stride});
    }
    step.workspace().ResetTo(mark);
  }

  // norm(q_down · x), or x itself where queries have no low rank.
  ConstTensorView LowRank(const Step& step, const DeepseekV3Attention& layer,
                          const TensorView& x) const {
    if (config_.q_rank == 0) return x;
    const TensorView down = step.workspace().Take(DType::kF32, {x.rows(), config_.q_rank});
    const TensorView normed = step.workspace().Take(DType::kF32, {x.rows(), config_.q_rank});
    Apply(step.stream(), step.workspace(), layer.q_down, x, down);
    ops::RmsNorm(
        step.stream(),
        {.out = normed, .x = down, .weight = Floats(layer.q_norm), .eps = config_.norm_eps});
    return normed;
  }

  // [T, heads, Dn + R], turned.
  TensorView Queries(const Step& step, const DeepseekV3Attention& layer,
                     const ConstTensorView& low) const {
    const int64_t heads = weights_.heads.size(), tokens = low.rows();
    const TensorView q = step.workspace().Take(DType::kF32, {tokens, heads * QueryDim()});
    Apply(step.stream(), step.workspace(), layer.q_up, low, q);
    const TensorView split{q.data, DType::kF32, {tokens, heads, QueryDim()}};
    ops::RotateHeads(step.stream(),
                     {.x = split, .rotary = config_.rope_dim, .cos_sin = step.cos_sin});
    return split;
  }

  int64_t SelectionStride() const { return std::min(config_.indexer->top_k, facts_.max_context); }

  // V3.2: appends the index keys of x and picks the tokens that each token attends to.
  Selection Select(const Step& step, int index, const TensorView& x,
                   const ConstTensorView& low) const {
    Workspace& workspace = step.workspace();
    const TokenIndexer& indexer = *Layer(index).attention.indexer;
    const int64_t tokens = x.rows(), heads = config_.indexer->num_heads,
                  d = config_.indexer->head_dim, stride = SelectionStride();
    int32_t* selected = workspace.TakeArray<int32_t>(tokens * stride);
    int32_t* counts = workspace.TakeArray<int32_t>(tokens);
    const TensorView q = workspace.Take(DType::kF32, {tokens, heads * d});
    const TensorView k = workspace.Take(DType::kF32, {tokens, d});
    const TensorView head_weights = workspace.Take(DType::kF32, {tokens, heads});
    Apply(step.stream(), workspace, indexer.q, low, q);
    Apply(step.stream(), workspace, indexer.k, x, k);
    Apply(step.stream(), workspace, indexer.head_weights, x, head_weights);
    ops::LayerNorm(step.stream(), {.out = k,
                                   .x = k,
                                   .weight = Floats(indexer.k_norm),
                                   .bias = Floats(indexer.k_norm_bias),
                                   .eps = kIndexNormEps});
    // The first R features turn, in halves: not as the latent's do.
    ops::Rope(step.stream(), {.q = {q.data, DType::kF32, {tokens, heads, d}},
                              .k = {k.data, DType::kF32, {tokens, 1, d}},
                              .q_row_stride = heads * d,
                              .k_row_stride = d,
                              .cos_sin = step.cos_sin,
                              .rotary_dim = config_.rope_dim});
    const ops::LatentLayerView keys = cache_.IndexKeys(index, step.pool());
    AppendIndexKeys(step, keys, q, k);
    const double scale = 1.0 / std::sqrt(static_cast<double>(heads) * static_cast<double>(d));
    ops::SelectEntries(step.stream(), workspace,
                       {.selected = selected,
                        .counts = counts,
                        .top_k = static_cast<int32_t>(stride),
                        .q = TensorView{q.data, DType::kF32, {tokens, heads, d}},
                        .weights = head_weights,
                        .weight_scale = static_cast<float>(scale),
                        .positions = step.batch.positions,
                        .keys = keys,
                        .rows = step.rows(),
                        .ratio = 1});
    return {selected, counts, stride};
  }

  // Stores k. Packed keys are transformed first, and the queries with them: the transform spreads
  // what a single feature would lose to the quantiser, and keeps products as they are.
  void AppendIndexKeys(const Step& step, const ops::LatentLayerView& keys, const TensorView& q,
                       const TensorView& k) const {
    const int64_t d = keys.width;
    if (cache_.packed()) {
      for (int64_t i = 0; i < q.shape.num_elements(); i += d) ops::Hadamard(q.as<float>() + i, d);
      for (int64_t i = 0; i < k.shape.num_elements(); i += d) ops::Hadamard(k.as<float>() + i, d);
    }
    const ops::AttentionRows& rows = step.rows();
    for (int32_t r = 0; r < rows.num_rows; ++r) {
      for (int32_t t = rows.q_begin[r]; t < rows.q_begin[r + 1]; ++t) {
        const int32_t position = step.batch.positions[t];
        ops::StoreLatentRow(keys, rows.PagesOf(r)[position / keys.page_rows],
                            position % keys.page_rows, k.as<float>() + t * d);
      }
    }
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

  // The last layer runs for the rows with logits alone.
  std::span<const int32_t> RowsPerRank(const ForwardBatch& batch, int layer) const {
    return layer + 1 == config_.num_layers ? batch.logits_per_rank : batch.tokens_per_rank;
  }
  // A rank without rows takes part in what becomes of the others'.
  void JoinLayer(const ForwardBatch& batch, const ForwardContext& context, int layer) const {
    if (!Layer(layer).moe) return;
    JoinMoe(context, weights_.moe, *Layer(layer).moe, layer, RowsPerRank(batch, layer));
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
  Rows KeepLogitRows(const Step& step, const Rows& all) const {
    if (step.batch.num_logits == step.batch.num_tokens) return all;
    const Rows kept = TakeRows(step.workspace(), step.batch.num_logits);
    const int32_t* index = step.batch.logits_index;
    ops::GatherRows(step.stream(), {.out = kept.hidden, .from = all.hidden, .index = index});
    if (HeadsWidth() > 0) {
      ops::GatherRows(step.stream(), {.out = kept.heads, .from = all.heads, .index = index});
    }
    return kept;
  }

  void WriteLogits(const ForwardBatch& batch, const ForwardContext& context,
                   const Rows& rows) const {
    if (!weights_.head.weights) return;
    const TensorView slice{reinterpret_cast<std::byte*>(batch.logits + weights_.vocab.begin),
                           DType::kF32, Shape{batch.num_logits, weights_.vocab.size()}};
    ops::Matmul(context.stream, *context.workspace,
                {.out = slice,
                 .x = rows.normed,
                 .w = &*weights_.head.weights,
                 .out_row_stride = config_.vocab_size});
  }

  const DeepseekV3Config config_;
  const ModelFacts facts_;
  const DeepseekV3Cache cache_;
  const DeepseekV3Weights weights_;
  const ops::RopeFrequencies frequencies_;
  const ops::LatentForm latent_form_;
  const int64_t weight_bytes_;
};

void NoteDraftLayers(const weights::Checkpoint& checkpoint, const DeepseekV3Config& config,
                     int rank) {
  const std::string first = "model.layers." + std::to_string(config.num_layers) + ".";
  const auto found = checkpoint.tensors().lower_bound(first);
  if (rank == 0 && found != checkpoint.tensors().end() && found->first.starts_with(first)) {
    LOG_INFO("{}: the {} layers that predict further tokens are not loaded",
             checkpoint.path().string(), std::max(1, config.num_draft_layers));
  }
}

}  // namespace

Result<std::unique_ptr<Model>> LoadDeepseekV3(const weights::Checkpoint& checkpoint,
                                              const DeepseekV3Config& config,
                                              const LoadOptions& options) {
  RETURN_IF_ERROR(RequireCpu(options, config.architecture));
  ASSIGN_OR_RETURN(const int32_t max_context, ContextOf(options, config.trained_context));
  ASSIGN_OR_RETURN(ops::RopeFrequencies frequencies,
                   ops::ComputeRopeFrequencies(config.rope, max_context));
  ASSIGN_OR_RETURN(DeepseekV3Cache cache, DeepseekV3Cache::Plan(config, options));
  ASSIGN_OR_RETURN(DeepseekV3Weights weights, LoadDeepseekV3Weights(checkpoint, config, options));
  NoteDraftLayers(checkpoint, config, options.rank);
  return std::unique_ptr<Model>(std::make_unique<DeepseekV3Model>(
      config, FactsOf(checkpoint, config, max_context), std::move(cache), std::move(weights),
      std::move(frequencies), options.latent_form));
}

}  // namespace hayate::models
