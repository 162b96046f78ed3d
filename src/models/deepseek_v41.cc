#include "models/deepseek_v41.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/error.h"
#include "models/detail/deepseek_trunk_model.h"
#include "models/detail/deepseek_v41_attention.h"
#include "models/detail/model_facts.h"
#include "models/layers/activation.h"

namespace hayate::models {
namespace {

constexpr int64_t kStreams = ops::kHyperStreams;

const float* Floats(const Buffer& buffer) { return reinterpret_cast<const float*>(buffer.data()); }

class DeepseekV41Model final : public DeepseekTrunkModel {
 public:
  DeepseekV41Model(const DeepseekV41Config& config, DeepseekDraftConfig draft, ModelFacts facts,
                   DeepseekV41Cache cache, DeepseekV41Weights weights, DeepseekRope rope,
                   DType activations)
      : config_(config),
        draft_(std::move(draft)),
        facts_(std::move(facts)),
        cache_(std::move(cache)),
        weights_(std::move(weights)),
        rope_(std::move(rope)),
        activations_(activations),
        streams_(config_, activations),
        tap_(config_, draft_, TapPlace::kInput),
        weight_bytes_(weights_.bytes()) {}

  const ModelFacts& facts() const override { return facts_; }
  const CacheLayout& cache_layout() const override { return cache_.layout(); }
  int64_t page_bytes(int group) const override { return cache_.page_bytes(group); }
  int64_t weight_bytes() const override { return weight_bytes_; }
  const ops::ExpertWeights* experts(int layer) const override {
    return &Layer(layer).experts.experts;
  }

  const DeepseekTrunkConfig& config() const override { return config_; }
  const TrunkWeights& trunk() const override { return weights_; }
  const DeepseekDraftConfig& drafts() const override { return draft_; }
  const DeepseekTrunkCache& cache() const override { return cache_; }
  const DeepseekRope& rope() const override { return rope_; }

  int32_t max_drafts() const override { return cache_.max_drafts(); }
  int64_t feature_width() const override { return tap_.width(); }

  int64_t workspace_bytes(int64_t max_tokens, int64_t max_logits) const override {
    const int64_t heads = weights_.shards.groups.size() * config_.group_heads();
    const int64_t sublayer =
        DeepseekV41AttentionLayer::WorkspaceBytes(config_, heads, max_tokens, facts_.max_context) +
        streams_.WorkspaceBytes(weights_.moe, weights_.shards.experts.experts.size(), max_tokens,
                                weights_.shards.experts.num_dp_ranks);
    return DeepseekV41StepBytes(config_, cache_, max_tokens) + streams_.RowsBytes(max_tokens) +
           streams_.RowsBytes(max_logits) + std::max(sublayer, EngramBytes(max_tokens));
  }

  void Forward(const ForwardBatch& batch, const ForwardContext& context) override {
    DCHECK_EQ(batch.rows.size(), cache_.layout().groups.size());
    if (batch.num_tokens == 0) return JoinLayers(batch, context);
    Workspace& workspace = *context.workspace;
    const size_t mark = workspace.mark();
    const DeepseekV41Step step = MakeDeepseekV41Step(config_, cache_, rope_, batch, context);
    StreamRows rows = streams_.Take(workspace, batch.num_tokens);
    streams_.Start(context, weights_.embedding.view, batch.token_ids, rows);
    rows.per_rank = batch.tokens_per_rank;
    if (!config_.engrams.empty()) {
      ops::EngramRemember(context.stream, History(batch, context), batch.token_ids,
                          reinterpret_cast<const int32_t*>(weights_.engram_token_map.data()));
    }
    const int last = config_.num_layers - 1;
    for (int layer = 0; layer < last; ++layer) {
      AttendLayer(batch, context, step, layer, rows);
      streams_.RunExperts(context, Layer(layer), weights_.moe, rows);
    }
    AttendLayer(batch, context, step, last, rows);
    // After its attention, the last layer computes only what the logits need.
    if (batch.num_logits > 0) {
      if (batch.num_logits < batch.num_tokens) {
        rows = streams_.Keep(context, rows, batch.logits_index, batch.num_logits);
      }
      rows.per_rank = batch.logits_per_rank;
      streams_.RunExperts(context, Layer(last), weights_.moe, rows);
      streams_.Collapse(context, nullptr, &weights_.final_norm, rows);
      WriteHeadLogits(context, weights_, config_.vocab_size, rows.input, batch.logits);
    } else {
      streams_.JoinExperts(context, Layer(last), weights_.moe, batch.logits_per_rank);
    }
    workspace.ResetTo(mark);
  }

 private:
  const DeepseekV41Layer& Layer(int layer) const {
    return weights_.layers[static_cast<size_t>(layer)];
  }

  ops::EngramHistory History(const ForwardBatch& batch, const ForwardContext& context) const {
    const auto group = static_cast<size_t>(cache_.engram_group());
    return {.base = context.pools[group],
            .page_stride = cache_.page_bytes(cache_.engram_group()),
            .page_tokens = cache_.layout().page_tokens,
            .rows = batch.rows[group],
            .positions = batch.positions,
            .num_tokens = batch.num_tokens};
  }

  int64_t EngramBytes(int64_t max_tokens) const {
    if (config_.engrams.empty()) return 0;
    const int64_t features = config_.engrams[0].rows_per_token() * config_.engram_width;
    return max_tokens * (features + (kStreams + 1) * config_.hidden_size) *
               static_cast<int64_t>(sizeof(float)) +
           ops::MatmulWorkspaceBytes(max_tokens, features) +
           2 * static_cast<int64_t>(Workspace::kAlignment);
  }

  void AddEngram(const ForwardBatch& batch, const ForwardContext& context, int layer,
                 StreamRows& rows) const {
    const EngramWeights& engram = *Layer(layer).engram;
    const ops::EngramHash& hash = config_.engrams[static_cast<size_t>(config_.engram_of(layer))];
    Workspace& workspace = *context.workspace;
    const size_t mark = workspace.mark();
    const TensorView gathered = workspace.Take(
        activations_, {batch.num_tokens, hash.rows_per_token() * config_.engram_width});
    const TensorView kv =
        workspace.Take(DType::kF32, {batch.num_tokens, (kStreams + 1) * config_.hidden_size});
    ops::EngramGather(context.stream,
                      {.out = gathered,
                       .table = engram.table.view,
                       .scales = engram.scales.view,
                       .hash = &hash,
                       .numbers = reinterpret_cast<const int64_t*>(engram.hash.data()),
                       .history = History(batch, context),
                       .padding = weights_.engram_padding});
    Apply(context.stream, workspace, engram.kv, gathered, kv);
    ops::EngramGate(context.stream, {.streams = rows.streams,
                                     .kv = kv,
                                     .q_weight = Floats(engram.q_weight),
                                     .k_weight = Floats(engram.k_weight)});
    workspace.ResetTo(mark);
  }

  // A rank without rows takes part in what becomes of the others'.
  void JoinLayers(const ForwardBatch& batch, const ForwardContext& context) const {
    for (int layer = 0; layer < config_.num_layers; ++layer) {
      const bool last = layer + 1 == config_.num_layers;
      streams_.JoinExperts(context, Layer(layer), weights_.moe,
                           last ? batch.logits_per_rank : batch.tokens_per_rank);
    }
  }

  void AttendLayer(const ForwardBatch& batch, const ForwardContext& context,
                   const DeepseekV41Step& step, int layer, StreamRows& rows) const {
    if (Layer(layer).engram) AddEngram(batch, context, layer, rows);
    tap_.AtInput(context.stream, layer, rows, batch.features);
    streams_.Enter(context, Layer(layer).attention_hyper, Layer(layer).attention_norm, rows);
    const DeepseekV41AttentionLayer attention(config_, cache_, Layer(layer), layer);
    const bool is_last = layer + 1 == config_.num_layers;
    if (is_last && batch.num_logits == 0) {
      attention.Append(batch, context, step, rows.input);
      return;
    }
    attention.Run(batch, context, step, rows.input, rows.part);
    streams_.Leave(context, rows);
  }

  const DeepseekV41Config config_;
  const DeepseekDraftConfig draft_;
  const ModelFacts facts_;
  const DeepseekV41Cache cache_;
  const DeepseekV41Weights weights_;
  const DeepseekRope rope_;
  const DType activations_;
  const DeepseekStreams streams_;
  const FeatureTap tap_;
  const int64_t weight_bytes_;
};

}  // namespace

Result<std::unique_ptr<Model>> LoadDeepseekV41(const weights::Checkpoint& checkpoint,
                                               const LoadOptions& options) {
  ASSIGN_OR_RETURN(const DeepseekV41Config config, ReadDeepseekV41Config(checkpoint));
  ASSIGN_OR_RETURN(DeepseekDraftConfig draft,
                   ChooseDeepseekDrafts(checkpoint, "text_config.", config, options));
  if (draft.kind == DraftKind::kNextN) {
    return Error(ErrorCode::kUnsupported, "{} has DSpark drafts alone", config.architecture);
  }
  ASSIGN_OR_RETURN(const int32_t max_context, ContextOf(options, config.trained_context));
  ASSIGN_OR_RETURN(DeepseekRope rope, DeepseekRope::Create(*options.device, config, max_context));
  ASSIGN_OR_RETURN(DeepseekV41Cache cache, DeepseekV41Cache::Plan(config, options));
  ASSIGN_OR_RETURN(DeepseekV41Weights weights, LoadDeepseekV41Weights(checkpoint, config, options));
  return std::unique_ptr<Model>(std::make_unique<DeepseekV41Model>(
      config, std::move(draft), FactsOf(checkpoint, config, max_context), std::move(cache),
      std::move(weights), std::move(rope), ActivationType(*options.device, options.precision)));
}

}  // namespace hayate::models
