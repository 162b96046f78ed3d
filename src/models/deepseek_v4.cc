#include "models/deepseek_v4.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/error.h"
#include "models/detail/deepseek_v4_attention.h"
#include "ops/embedding/embedding.h"

namespace hayate::models {
namespace {

constexpr int64_t kStreams = ops::kHyperStreams;

const float* Floats(const Buffer& buffer) { return reinterpret_cast<const float*>(buffer.data()); }

// to[i] = from[index[i]] for rows of `width` floats.
void GatherRows(ConstTensorView from, const int32_t* index, int64_t width, TensorView to) {
  for (int64_t i = 0; i < to.shape[0]; ++i) {
    std::copy_n(from.as<float>() + index[i] * width, width, to.as<float>() + i * width);
  }
}

class DeepseekV4Model final : public Model {
 public:
  DeepseekV4Model(const DeepseekV4Config& config, ModelFacts facts, DeepseekV4Cache cache,
                  DeepseekV4Weights weights, DeepseekV4Rope rope)
      : config_(config),
        facts_(std::move(facts)),
        cache_(std::move(cache)),
        weights_(std::move(weights)),
        rope_(std::move(rope)),
        weight_bytes_(weights_.bytes()) {}

  const ModelFacts& facts() const override { return facts_; }
  const CacheLayout& cache_layout() const override { return cache_.layout(); }
  int64_t page_bytes(int group) const override { return cache_.page_bytes(group); }
  int64_t weight_bytes() const override { return weight_bytes_; }

  int64_t workspace_bytes(int64_t max_tokens, int64_t max_logits) const override {
    const int64_t h = config_.hidden_size;
    const int64_t heads =
        weights_.groups.size() * (config_.num_heads / std::max(1, config_.o_groups));
    // Rotations and targets of the step; the streams, a sublayer's input, output and coefficients,
    // for all tokens and for the rows with logits.
    const int64_t per_token =
        (2 + static_cast<int64_t>(cache_.layout().groups.size())) * (config_.rotary_dim + 3) + 1;
    const int64_t rows = (kStreams + 2) * h + ops::kHyperMixes;
    const int64_t floats = max_tokens * (per_token + rows) + max_logits * (rows + 1);
    const int64_t sublayer = std::max(
        DeepseekV4AttentionLayer::WorkspaceBytes(config_, heads, max_tokens, facts_.max_context),
        ops::MoeWorkspaceBytes(weights_.moe,
                               static_cast<int64_t>(weights_.layers[0].experts.experts.down.size()),
                               max_tokens));
    return floats * static_cast<int64_t>(sizeof(float)) + sublayer +
           ops::HyperWorkspaceBytes(max_tokens, h) +
           (16 + 4 * static_cast<int64_t>(cache_.layout().groups.size())) *
               static_cast<int64_t>(Workspace::kAlignment);
  }

  void Forward(const ForwardBatch& batch, const ForwardContext& context) override {
    DCHECK_EQ(batch.rows.size(), cache_.layout().groups.size());
    Workspace& workspace = *context.workspace;
    const size_t mark = workspace.mark();
    const DeepseekV4Step step = MakeDeepseekV4Step(config_, cache_, rope_, batch, workspace);
    Rows rows = TakeRows(workspace, batch.num_tokens);
    rows.token_ids = batch.token_ids;
    ops::Embedding(context.stream,
                   {.out = rows.input, .ids = batch.token_ids, .table = weights_.embedding});
    ops::HyperExpand(context.stream, rows.streams, rows.input);
    const int last = config_.num_layers - 1;
    for (int layer = 0; layer < last; ++layer) {
      AttendLayer(batch, context, step, layer, AttentionOutput::kWanted, rows);
      ChooseExperts(context, layer, rows);
    }
    if (batch.num_logits == 0) {
      AttendLayer(batch, context, step, last, AttentionOutput::kCacheOnly, rows);
    } else {
      AttendLayer(batch, context, step, last, AttentionOutput::kWanted, rows);
      rows = KeepLogitRows(batch, workspace, rows);
      ChooseExperts(context, last, rows);
      WriteLogits(batch, context, rows);
    }
    workspace.ResetTo(mark);
  }

 private:
  // What passes from sublayer to sublayer, for all tokens or for the rows with logits.
  struct Rows {
    TensorView streams;       // [T, 4, H]
    TensorView input;         // [T, H], of a sublayer
    TensorView part;          // [T, H]: this rank's part of a sublayer's output, then the sum
    TensorView coefficients;  // [T, 24]
    const int32_t* token_ids = nullptr;
  };

  const DeepseekV4Layer& Layer(int layer) const {
    return weights_.layers[static_cast<size_t>(layer)];
  }

  Rows TakeRows(Workspace& workspace, int64_t count) const {
    const int64_t h = config_.hidden_size;
    return {.streams = workspace.Take(DType::kF32, {count, kStreams, h}),
            .input = workspace.Take(DType::kF32, {count, h}),
            .part = workspace.Take(DType::kF32, {count, h}),
            .coefficients = workspace.Take(DType::kF32, {count, ops::kHyperMixes})};
  }

  void Enter(const ForwardContext& context, const HyperWeights& hyper, const Buffer& norm,
             Rows& rows) const {
    ops::HyperEnter(
        context.stream, *context.workspace,
        {.out = rows.input,
         .coefficients = rows.coefficients,
         .streams = rows.streams,
         .weights = hyper.View(config_.norm_eps, config_.hyper_eps, config_.hyper_iterations),
         .norm = Floats(norm)});
  }

  void Leave(const ForwardContext& context, Rows& rows) const {
    context.group->AllReduce(context.stream, rows.part);
    ops::HyperLeave(context.stream,
                    {.streams = rows.streams, .y = rows.part, .coefficients = rows.coefficients});
  }

  void AttendLayer(const ForwardBatch& batch, const ForwardContext& context,
                   const DeepseekV4Step& step, int layer, AttentionOutput wanted,
                   Rows& rows) const {
    Enter(context, Layer(layer).attention_hyper, Layer(layer).attention_norm, rows);
    const DeepseekV4AttentionLayer attention(config_, cache_, Layer(layer).attention, layer);
    attention.Run(batch, context, step, rows.input, wanted, rows.part);
    if (wanted == AttentionOutput::kWanted) Leave(context, rows);
  }

  void ChooseExperts(const ForwardContext& context, int layer, Rows& rows) const {
    Enter(context, Layer(layer).ffn_hyper, Layer(layer).ffn_norm, rows);
    ops::Moe(context.stream, *context.workspace,
             {.out = rows.part,
              .x = rows.input,
              .token_ids = rows.token_ids,
              .config = &weights_.moe,
              .weights = &Layer(layer).experts});
    Leave(context, rows);
  }

  // After its attention, the last layer computes only what the logits need.
  Rows KeepLogitRows(const ForwardBatch& batch, Workspace& workspace, const Rows& all) const {
    if (batch.num_logits == batch.num_tokens) return all;
    Rows kept = TakeRows(workspace, batch.num_logits);
    GatherRows(all.streams, batch.logits_index, kStreams * config_.hidden_size, kept.streams);
    int32_t* ids = workspace.TakeArray<int32_t>(batch.num_logits);
    for (int32_t i = 0; i < batch.num_logits; ++i) ids[i] = batch.token_ids[batch.logits_index[i]];
    kept.token_ids = ids;
    return kept;
  }

  void WriteLogits(const ForwardBatch& batch, const ForwardContext& context,
                   const Rows& rows) const {
    if (!weights_.head.weights) return;
    ops::HyperCollapse(context.stream, *context.workspace,
                       {.out = rows.input,
                        .streams = rows.streams,
                        .weights = weights_.head_hyper.View(config_.norm_eps, config_.hyper_eps,
                                                            config_.hyper_iterations),
                        .norm = Floats(weights_.final_norm),
                        .norm_eps = config_.norm_eps});
    const TensorView slice{reinterpret_cast<std::byte*>(batch.logits + weights_.vocab.begin),
                           DType::kF32, Shape{batch.num_logits, weights_.vocab.size()}};
    ops::Matmul(context.stream, *context.workspace,
                {.out = slice,
                 .x = rows.input,
                 .w = &*weights_.head.weights,
                 .out_row_stride = config_.vocab_size});
  }

  const DeepseekV4Config config_;
  const ModelFacts facts_;
  const DeepseekV4Cache cache_;
  const DeepseekV4Weights weights_;
  const DeepseekV4Rope rope_;
  const int64_t weight_bytes_;
};

}  // namespace

Result<std::unique_ptr<Model>> LoadDeepseekV4(const weights::Checkpoint& checkpoint,
                                              const LoadOptions& options) {
  if (options.device->kind() != DeviceKind::kCpu) {
    return Error(ErrorCode::kUnsupported, "{} runs on the CPU alone", checkpoint.architecture());
  }
  ASSIGN_OR_RETURN(const DeepseekV4Config config, ReadDeepseekV4Config(checkpoint));
  if (options.max_context > config.trained_context) {
    return Error(ErrorCode::kInvalidArgument,
                 "a context of {} tokens; the model was made for at most {}", options.max_context,
                 config.trained_context);
  }
  const int32_t max_context =
      options.max_context > 0 ? options.max_context : config.trained_context;
  ASSIGN_OR_RETURN(DeepseekV4Rope rope, DeepseekV4Rope::Create(config, max_context));
  ASSIGN_OR_RETURN(DeepseekV4Cache cache, DeepseekV4Cache::Plan(config, options));
  ASSIGN_OR_RETURN(DeepseekV4Weights weights, LoadDeepseekV4Weights(checkpoint, config, options));
  ModelFacts facts = {.architecture = config.architecture,
                      .vocab_size = config.vocab_size,
                      .max_context = max_context,
                      .trained_context = config.trained_context,
                      .hidden_size = config.hidden_size,
                      .num_layers = config.num_layers,
                      .eos_ids = config.eos_ids};
  for (const auto& [name, info] : checkpoint.tensors()) {
    facts.num_parameters += info.shape.num_elements();
  }
  return std::unique_ptr<Model>(std::make_unique<DeepseekV4Model>(
      config, std::move(facts), std::move(cache), std::move(weights), std::move(rope)));
}

}  // namespace hayate::models
