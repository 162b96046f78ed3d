#include "models/deepseek_v4.h"

#include <utility>

#include "base/check.h"
#include "models/detail/deepseek_trunk_model.h"
#include "models/detail/deepseek_v4_attention.h"
#include "models/detail/model_facts.h"
#include "models/layers/activation.h"

namespace hayate::models {
namespace {

class DeepseekV4Model final : public DeepseekTrunkModel {
 public:
  DeepseekV4Model(const DeepseekV4Config& config, DeepseekDraftConfig draft, ModelFacts facts,
                  DeepseekV4Cache cache, DeepseekV4Weights weights, DeepseekRope rope,
                  DType activations)
      : config_(config),
        draft_(std::move(draft)),
        facts_(std::move(facts)),
        cache_(std::move(cache)),
        weights_(std::move(weights)),
        rope_(std::move(rope)),
        streams_(config_, activations),
        tap_(config_, draft_, TapPlace::kOutput),
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
        DeepseekV4AttentionLayer::WorkspaceBytes(config_, heads, max_tokens, facts_.max_context) +
        streams_.WorkspaceBytes(weights_.moe, weights_.shards.experts.experts.size(), max_tokens,
                                weights_.shards.experts.num_dp_ranks);
    return DeepseekStepBytes(config_, cache_.layout(), max_tokens) +
           streams_.RowsBytes(max_tokens) + streams_.RowsBytes(max_logits) + sublayer;
  }

  void Forward(const ForwardBatch& batch, const ForwardContext& context) override {
    DCHECK_EQ(batch.rows.size(), cache_.layout().groups.size());
    if (batch.num_tokens == 0) return JoinLayers(batch, context);
    Workspace& workspace = *context.workspace;
    const size_t mark = workspace.mark();
    const DeepseekStep step =
        MakeDeepseekStep(cache_.layout(), cache_.states(), rope_, batch, context);
    StreamRows rows = streams_.Take(workspace, batch.num_tokens);
    streams_.Start(context, weights_.embedding.view, batch.token_ids, rows);
    rows.per_rank = batch.tokens_per_rank;
    const int last = config_.num_layers - 1;
    for (int layer = 0; layer < last; ++layer) {
      AttendLayer(batch, context, step, layer, rows);
      ChooseExperts(batch, context, layer, rows);
    }
    RunLastLayer(batch, context, step, last, rows);
    workspace.ResetTo(mark);
  }

 private:
  const DeepseekV4Layer& Layer(int layer) const {
    return weights_.layers[static_cast<size_t>(layer)];
  }

  // A rank without rows takes part in what becomes of the others'.
  void JoinLayers(const ForwardBatch& batch, const ForwardContext& context) const {
    const bool every = batch.features != nullptr && tap_.wants_last_output();
    for (int layer = 0; layer < config_.num_layers; ++layer) {
      const bool logits_alone = layer + 1 == config_.num_layers && !every;
      streams_.JoinExperts(context, Layer(layer), weights_.moe,
                           logits_alone ? batch.logits_per_rank : batch.tokens_per_rank);
    }
  }

  void AttendLayer(const ForwardBatch& batch, const ForwardContext& context,
                   const DeepseekStep& step, int layer, StreamRows& rows) const {
    streams_.Enter(context, Layer(layer).attention_hyper, Layer(layer).attention_norm, rows);
    const DeepseekV4AttentionLayer attention(config_, cache_, Layer(layer), layer);
    attention.Run(batch, context, step, rows.input, rows.part);
    streams_.Leave(context, rows);
  }

  void ChooseExperts(const ForwardBatch& batch, const ForwardContext& context, int layer,
                     StreamRows& rows) const {
    streams_.RunExperts(context, Layer(layer), weights_.moe, rows);
    tap_.AtOutput(context.stream, layer, rows, batch.features);
  }

  // After its attention, the last layer computes only what logits and features need.
  void RunLastLayer(const ForwardBatch& batch, const ForwardContext& context,
                    const DeepseekStep& step, int layer, StreamRows& rows) const {
    const bool every = batch.features != nullptr && tap_.wants_last_output();
    if (batch.num_logits == 0 && !every) {
      streams_.Enter(context, Layer(layer).attention_hyper, Layer(layer).attention_norm, rows);
      DeepseekV4AttentionLayer(config_, cache_, Layer(layer), layer)
          .Append(batch, context, step, rows.input);
      streams_.JoinExperts(context, Layer(layer), weights_.moe, batch.logits_per_rank);
      return;
    }
    AttendLayer(batch, context, step, layer, rows);
    if (every) ChooseExperts(batch, context, layer, rows);
    if (batch.num_logits == 0) return;
    if (batch.num_logits < batch.num_tokens) {
      rows = streams_.Keep(context, rows, batch.logits_index, batch.num_logits);
    }
    rows.per_rank = batch.logits_per_rank;
    if (!every) streams_.RunExperts(context, Layer(layer), weights_.moe, rows);
    streams_.Collapse(context, &weights_.head_hyper, &weights_.final_norm, rows);
    WriteHeadLogits(context, weights_, config_.vocab_size, rows.input, batch.logits);
  }

  const DeepseekV4Config config_;
  const DeepseekDraftConfig draft_;
  const ModelFacts facts_;
  const DeepseekV4Cache cache_;
  const DeepseekV4Weights weights_;
  const DeepseekRope rope_;
  const DeepseekStreams streams_;
  const FeatureTap tap_;
  const int64_t weight_bytes_;
};

}  // namespace

Result<std::unique_ptr<Model>> LoadDeepseekV4(const weights::Checkpoint& checkpoint,
                                              const LoadOptions& options) {
  ASSIGN_OR_RETURN(const DeepseekV4Config config, ReadDeepseekV4Config(checkpoint));
  ASSIGN_OR_RETURN(DeepseekDraftConfig draft,
                   ChooseDeepseekDrafts(checkpoint, "", config, options));
  ASSIGN_OR_RETURN(const int32_t max_context, ContextOf(options, config.trained_context));
  ASSIGN_OR_RETURN(DeepseekRope rope, DeepseekRope::Create(*options.device, config, max_context));
  ASSIGN_OR_RETURN(DeepseekV4Cache cache, DeepseekV4Cache::Plan(config, options));
  ASSIGN_OR_RETURN(DeepseekV4Weights weights, LoadDeepseekV4Weights(checkpoint, config, options));
  return std::unique_ptr<Model>(std::make_unique<DeepseekV4Model>(
      config, std::move(draft), FactsOf(checkpoint, config, max_context), std::move(cache),
      std::move(weights), std::move(rope), ActivationType(*options.device, options.precision)));
}

}  // namespace hayate::models
