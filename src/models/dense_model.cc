#include "models/dense_model.h"

#include <algorithm>
#include <array>
#include <utility>

#include "base/check.h"
#include "models/detail/dense_cache.h"
#include "models/detail/dense_target.h"
#include "models/detail/dense_weights.h"
#include "models/detail/eagle3_config.h"
#include "models/detail/model_facts.h"
#include "models/layers/activation.h"
#include "models/layers/head_logits.h"
#include "models/layers/moe.h"
#include "ops/embedding/embedding.h"
#include "ops/gather/copy_columns.h"
#include "ops/gather/gather_rows.h"
#include "ops/matmul/layer_tail.h"
#include "ops/norm/rms_norm.h"
#include "ops/rope/rope.h"

namespace hayate::models {
namespace {

const float* Floats(const Buffer& buffer) { return reinterpret_cast<const float*>(buffer.data()); }

// The model's inverse frequencies in device memory.
struct RopeTable {
  Buffer inv_freq;  // [rotary_dim / 2] f32
  float attention_factor = 1.0f;
};
Result<RopeTable> PlaceFrequencies(Device& device, const ops::RopeFrequencies& frequencies) {
  const size_t bytes = frequencies.inv_freq.size() * sizeof(float);
  RopeTable table = {.attention_factor = frequencies.attention_factor};
  ASSIGN_OR_RETURN(table.inv_freq, Buffer::Allocate(device, bytes));
  device.Upload(table.inv_freq.data(), frequencies.inv_freq.data(), bytes);
  return table;
}

// Both ways to quantise activations, in the order of their values.
constexpr std::array kFp8Scalings = {ops::Fp8Scaling::kPerGroup, ops::Fp8Scaling::kPerToken};
using EachScaling = std::array<bool, kFp8Scalings.size()>;

// Which of them the products after a norm want.
EachScaling ScalingsOf(const DenseWeights& weights) {
  EachScaling wanted{};
  for (const DenseLayer& layer : weights.layers) {
    for (const Linear* linear : {&layer.attention.qkv, &layer.mlp.gate_up}) {
      if (const auto scaling = linear->WantedFp8()) wanted[static_cast<size_t>(*scaling)] = true;
    }
  }
  return wanted;
}

class DenseModel final : public DenseTarget {
 public:
  DenseModel(ModelConfig config, ModelFacts facts, DenseCache cache, DenseWeights weights,
             RopeTable rope, std::vector<int32_t> feature_layers, DType activations,
             ops::SumOrder sum_order)
      : config_(std::move(config)),
        facts_(std::move(facts)),
        cache_(std::move(cache)),
        weights_(std::move(weights)),
        rope_(std::move(rope)),
        feature_layers_(std::move(feature_layers)),
        activations_(activations),
        sum_order_(sum_order),
        norm_fp8_(ScalingsOf(weights_)),
        weight_bytes_(weights_.bytes()) {}

  const ModelFacts& facts() const override { return facts_; }
  const CacheLayout& cache_layout() const override { return cache_.layout(); }
  int64_t page_bytes(int group) const override { return cache_.page_bytes(group); }
  int64_t weight_bytes() const override { return weight_bytes_; }
  const ops::ExpertWeights* experts(int layer) const override {
    return Layer(layer).moe ? &Layer(layer).moe->experts : nullptr;
  }
  int64_t feature_width() const override {
    return static_cast<int64_t>(feature_layers_.size()) * config_.hidden_size;
  }
  const EmbeddingTable& embedding() const override { return weights_.embedding; }
  bool gives_hidden() const override { return true; }
  ops::AttentionPlanShape attention_shape(int group) const override {
    const AttentionShape& attention = weights_.attention;
    const ops::KvLayerView cache = cache_.View(0, nullptr);  // equal in all layers but for its base
    return {.num_q_heads = static_cast<int32_t>(attention.heads.query.size()),
            .num_kv_heads = cache.num_kv_heads,
            .group_size = attention.group_size,
            .group_offset = attention.heads.group_offset,
            .head_dim = cache.head_dim,
            .page_tokens = cache.page_tokens,
            .activations = activations_,
            .cache = cache.dtype,
            .window = cache_.layout().groups[static_cast<size_t>(group)].window,
            .split = sum_order_ == ops::SumOrder::kFixed ? ops::SplitRule::kByPosition
                                                         : ops::SplitRule::kBalanced};
  }

  int64_t workspace_bytes(int64_t max_tokens, int64_t max_logits) const override {
    const int64_t h = config_.hidden_size, q = weights_.attention.q_width();
    // Rotations of the step, then h, norm and partial sum for all tokens and for the rows with
    // logits, the heads' outputs of both, and queries, keys and values.
    const int64_t floats = max_tokens * (weights_.attention.rotary_dim + 3 * h + q) +
                           max_logits * (3 * h + q) + 2 * ops::DeferredNormFloats(h);
    const int64_t layer = std::max({AttentionWorkspaceBytes(weights_.attention, max_tokens, h),
                                    MlpWorkspaceBytes(max_tokens, h, weights_.ffn.size()),
                                    MoeBytes(max_tokens), ops::MatmulWorkspaceBytes(max_tokens, q),
                                    ops::MatmulWorkspaceBytes(max_logits, h)});
    int64_t fp8 = 0;
    for (const ops::Fp8Scaling scaling : kFp8Scalings) {
      if (!norm_fp8_[static_cast<size_t>(scaling)]) continue;
      fp8 += ops::Fp8RowsBytes(scaling, max_tokens, h) + ops::Fp8RowsBytes(scaling, max_logits, h);
    }
    return floats * static_cast<int64_t>(sizeof(float)) + fp8 + layer +
           15 * static_cast<int64_t>(Workspace::kAlignment);
  }

  void Forward(const ForwardBatch& batch, const ForwardContext& context) override {
    DCHECK_EQ(batch.rows.size(), cache_.layout().groups.size());
    if (batch.num_tokens == 0) return JoinLayers(batch, context);
    Workspace& workspace = *context.workspace;
    const size_t mark = workspace.mark();
    const AttentionStep step = MakeStep(batch, context);
    Rows rows = TakeRows(workspace, batch.num_tokens);
    ops::Embedding(context.stream,
                   {.out = rows.hidden, .ids = batch.token_ids, .table = weights_.embedding.view});
    const NormedRows first = NormedFor(Layer(0).attention.qkv, rows);
    ops::RmsNorm(context.stream, {.out = first.values,
                                  .x = rows.hidden,
                                  .weight = Floats(Layer(0).attention_norm),
                                  .eps = config_.norm_eps,
                                  .fp8 = first.fp8});
    rows.qkv = workspace.Take(activations_, {batch.num_tokens, weights_.attention.qkv_width()});
    ProjectLayer(context, 0, rows);
    const int last = config_.num_layers - 1;
    for (int layer = 0; layer < last; ++layer) {
      KeepFeatures(batch, context, layer, rows);
      AttendLayer(batch, context, step, layer, rows);
      FinishLayer(batch, context, layer, rows);
    }
    KeepFeatures(batch, context, last, rows);
    if (batch.num_logits == 0) {
      AppendProjected(context.stream, weights_.attention, Layer(last).attention, step,
                      RowsOf(batch, last), CacheOf(context, last), rows.qkv);
      JoinLayer(batch, context, last);
    } else {
      AttendLayer(batch, context, step, last, rows);
      rows = KeepLogitRows(batch, context, rows);
      FinishLayer(batch, context, last, rows);
      if (batch.hidden != nullptr) WriteHidden(batch, context, rows);
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
    TensorView heads;   // [T, q_width]
    TensorView qkv;     // [T, qkv_width] of the next attention, of all tokens
    // normed quantised, where a layer wants it so.
    std::array<ops::Fp8Rows, kFp8Scalings.size()> normed_fp8;
    float* squares = nullptr;  // [DeferredNormFloats(H)]
  };
  // What a norm writes and the product after it reads: values, or fp8 rows alone.
  struct NormedRows {
    TensorView values;
    ops::Fp8Rows fp8;
  };
  int64_t MoeBytes(int64_t max_tokens) const {
    if (!config_.moe) return 0;
    return MoeLayerWorkspaceBytes(weights_.moe, weights_.num_experts, max_tokens,
                                  weights_.num_dp_ranks);
  }
  const DenseLayer& Layer(int layer) const { return weights_.layers[static_cast<size_t>(layer)]; }
  const ops::AttentionRows& RowsOf(const ForwardBatch& batch, int layer) const {
    return batch.rows[static_cast<size_t>(cache_.group(layer))];
  }
  ops::KvLayerView CacheOf(const ForwardContext& context, int layer) const {
    return cache_.View(layer, context.pools[static_cast<size_t>(cache_.group(layer))]);
  }

  Rows TakeRows(Workspace& workspace, int64_t count) const {
    const Shape whole{count, config_.hidden_size};
    Rows rows = {
        .hidden = workspace.Take(DType::kF32, whole),
        .normed = workspace.Take(activations_, whole),
        .part = workspace.Take(activations_, whole),
        .heads = workspace.Take(activations_, {count, weights_.attention.q_width()}),
        .squares = workspace.TakeArray<float>(ops::DeferredNormFloats(config_.hidden_size))};
    for (const ops::Fp8Scaling scaling : kFp8Scalings) {
      const auto index = static_cast<size_t>(scaling);
      if (!norm_fp8_[index]) continue;
      rows.normed_fp8[index] = ops::TakeFp8Rows(workspace, scaling, count, config_.hidden_size);
    }
    return rows;
  }

  static NormedRows NormedFor(const Linear& next, const Rows& rows) {
    const auto scaling = next.WantedFp8();
    if (!scaling) return {.values = rows.normed};
    return {.values = {nullptr, rows.normed.dtype, rows.normed.shape},
            .fp8 = rows.normed_fp8[static_cast<size_t>(*scaling)]};
  }
  static LinearInput InputOf(const Linear& next, const Rows& rows) {
    const NormedRows normed = NormedFor(next, rows);
    return {normed.values, normed.fp8};
  }

  AttentionStep MakeStep(const ForwardBatch& batch, const ForwardContext& context) const {
    const TensorView cos_sin =
        context.workspace->Take(DType::kF32, {batch.num_tokens, weights_.attention.rotary_dim});
    ops::RopeRows(context.stream, {.out = cos_sin,
                                   .positions = batch.positions,
                                   .inv_freq = Floats(rope_.inv_freq),
                                   .attention_factor = rope_.attention_factor});
    return {batch.positions, cos_sin.as<float>()};
  }

  // What enters the layer, for a drafter that looks at it.
  void KeepFeatures(const ForwardBatch& batch, const ForwardContext& context, int layer,
                    const Rows& rows) const {
    if (batch.features == nullptr) return;
    const int64_t h = config_.hidden_size, width = feature_width();
    for (size_t i = 0; i < feature_layers_.size(); ++i) {
      if (feature_layers_[i] != layer) continue;
      float* to = batch.features + static_cast<int64_t>(i) * h;
      ops::CopyColumns(context.stream,
                       {.out = {reinterpret_cast<std::byte*>(to), DType::kF32, rows.hidden.shape},
                        .out_row_stride = width,
                        .from = rows.hidden});
    }
  }

  void AttendLayer(const ForwardBatch& batch, const ForwardContext& context,
                   const AttentionStep& step, int layer, Rows& rows) {
    AttendProjected(context.stream, *context.workspace, weights_.attention, Layer(layer).attention,
                    step, RowsOf(batch, layer), CacheOf(context, layer), rows.qkv, rows.heads);
  }
  void ProjectLayer(const ForwardContext& context, int layer, const Rows& rows) const {
    const Linear& qkv = Layer(layer).attention.qkv;
    if (qkv.n() > 0) Apply(context.stream, *context.workspace, qkv, InputOf(qkv, rows), rows.qkv);
  }

  // The layer from its output projection on, the norm that the next one (or the head) begins with,
  // and the next one's first projection.
  void FinishLayer(const ForwardBatch& batch, const ForwardContext& context, int layer,
                   Rows& rows) {
    const DenseLayer& weights = Layer(layer);
    const bool last = layer + 1 == config_.num_layers;
    if (!last && !weights.moe && context.group->size() == 1) {
      return FinishDenseLayer(context, weights, Layer(layer + 1), rows);
    }
    const Buffer& next_norm = last ? weights_.final_norm : Layer(layer + 1).attention_norm;
    const Linear* next = last ? nullptr : &Layer(layer + 1).attention.qkv;
    Apply(context.stream, *context.workspace, weights.attention.output, rows.heads, rows.part);
    AddSum(context, weights.mlp_norm, weights.moe ? nullptr : &weights.mlp.gate_up, rows);
    if (weights.moe) {
      ApplyMoe(context, {.out = rows.part,
                         .x = rows.normed,
                         .config = &weights_.moe,
                         .weights = &*weights.moe,
                         .rows_per_rank = RowsPerRank(batch, layer),
                         .layer = layer});
    } else {
      ApplyMlp(context.stream, *context.workspace, weights.mlp, InputOf(weights.mlp.gate_up, rows),
               rows.part);
    }
    AddSum(context, next_norm, next, rows);
    if (!last) ProjectLayer(context, layer + 1, rows);
  }

  // The same where no other rank has a part in it.
  void FinishDenseLayer(const ForwardContext& context, const DenseLayer& layer,
                        const DenseLayer& next, const Rows& rows) const {
    Workspace& workspace = *context.workspace;
    const size_t mark = workspace.mark();
    const ops::MatmulSwiGluArgs gate_up =
        TakeGateUp(workspace, layer.mlp, InputOf(layer.mlp.gate_up, rows));
    const LinearInput gated{gate_up.glu.out, gate_up.glu.fp8};
    ops::LayerTail(
        context.stream, workspace,
        {.output =
             EndWith(layer.attention.output, rows.heads, layer.mlp_norm, layer.mlp.gate_up, rows),
         .gate_up = gate_up,
         .down = EndWith(layer.mlp.down, gated, next.attention_norm, next.attention.qkv, rows),
         .next = ProductOf(next.attention.qkv, InputOf(next.attention.qkv, rows), rows.qkv)});
    workspace.ResetTo(mark);
  }
  // hidden += product(input), and the norm before `next`.
  ops::MatmulAddNormArgs EndWith(const Linear& product, const LinearInput& input,
                                 const Buffer& norm, const Linear& next, const Rows& rows) const {
    return {.product = ProductOf(product, input, rows.part),
            .norm = NormOf(norm, NormedFor(next, rows), rows),
            .next = &*next.weights,
            .squares = rows.squares};
  }

  // The last layer runs for the rows with logits alone.
  std::span<const int32_t> RowsPerRank(const ForwardBatch& batch, int layer) const {
    return layer + 1 == config_.num_layers ? batch.logits_per_rank : batch.tokens_per_rank;
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
  void AddSum(const ForwardContext& context, const Buffer& norm, const Linear* next,
              const Rows& rows) const {
    const NormedRows normed =
        next == nullptr ? NormedRows{.values = rows.normed} : NormedFor(*next, rows);
    const comm::SumNormArgs whole = {.residual = rows.hidden,
                                     .part = rows.part,
                                     .out = normed.values,
                                     .weight = Floats(norm),
                                     .eps = config_.norm_eps};
    if (!normed.fp8.wanted() && context.group->AllReduceAddNorm(context.stream, whole)) return;
    context.group->AllReduce(context.stream, rows.part);
    ops::AddRmsNorm(context.stream, NormOf(norm, normed, rows));
  }

  ops::AddRmsNormArgs NormOf(const Buffer& norm, const NormedRows& normed, const Rows& rows) const {
    return {.residual = rows.hidden,
            .x = rows.part,
            .out = normed.values,
            .weight = Floats(norm),
            .eps = config_.norm_eps,
            .fp8 = normed.fp8};
  }

  // After its attention, the last layer computes only what the logits need.
  Rows KeepLogitRows(const ForwardBatch& batch, const ForwardContext& context,
                     const Rows& all) const {
    if (batch.num_logits == batch.num_tokens) return all;
    Rows kept = TakeRows(*context.workspace, batch.num_logits);
    ops::GatherRows(context.stream,
                    {.out = kept.hidden, .from = all.hidden, .index = batch.logits_index});
    ops::GatherRows(context.stream,
                    {.out = kept.heads, .from = all.heads, .index = batch.logits_index});
    return kept;
  }

  // In f32, whatever the activations are.
  void WriteHidden(const ForwardBatch& batch, const ForwardContext& context, const Rows& rows) {
    const TensorView out{reinterpret_cast<std::byte*>(batch.hidden), DType::kF32,
                         Shape{batch.num_logits, config_.hidden_size}};
    ops::RmsNorm(context.stream, {.out = out,
                                  .x = rows.hidden,
                                  .weight = Floats(weights_.final_norm),
                                  .eps = config_.norm_eps});
  }

  const ModelConfig config_;
  const ModelFacts facts_;
  const DenseCache cache_;
  const DenseWeights weights_;
  const RopeTable rope_;
  const std::vector<int32_t> feature_layers_;  // whose input a forward pass leaves, in this order
  const DType activations_;
  const ops::SumOrder sum_order_;
  const EachScaling norm_fp8_;
  const int64_t weight_bytes_;
};

}  // namespace

Result<std::unique_ptr<Model>> LoadDenseModel(const weights::Checkpoint& checkpoint,
                                              const ModelConfig& config,
                                              const LoadOptions& options) {
  std::vector<int32_t> feature_layers;
  if (options.draft == DraftKind::kEagle3) {
    CHECK(options.draft_checkpoint != nullptr);
    Result<std::vector<int32_t>> layers =
        ReadEagle3Layers(*options.draft_checkpoint, config.num_layers);
    if (!layers.ok()) return layers.status().Under(options.draft_checkpoint->path().string());
    feature_layers = std::move(layers).value();
  }
  ASSIGN_OR_RETURN(const int32_t max_context, ContextOf(options, config.trained_context));
  ASSIGN_OR_RETURN(const ops::RopeFrequencies frequencies,
                   ops::ComputeRopeFrequencies(config.rope, max_context));
  ASSIGN_OR_RETURN(RopeTable rope, PlaceFrequencies(*options.device, frequencies));
  ASSIGN_OR_RETURN(DenseCache cache, DenseCache::Plan(checkpoint, config, options));
  ASSIGN_OR_RETURN(DenseWeights weights, LoadDenseWeights(checkpoint, config, options));
  return std::unique_ptr<Model>(std::make_unique<DenseModel>(
      config, FactsOf(checkpoint, config, max_context), std::move(cache), std::move(weights),
      std::move(rope), std::move(feature_layers),
      ActivationType(*options.device, options.precision), options.sum_order));
}

}  // namespace hayate::models
