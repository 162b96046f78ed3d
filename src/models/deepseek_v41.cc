#include "models/deepseek_v41.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/error.h"
#include "models/detail/deepseek_v41_attention.h"
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

class DeepseekV41Model final : public Model {
 public:
  DeepseekV41Model(const DeepseekV41Config& config, ModelFacts facts, DeepseekV41Cache cache,
                   DeepseekV41Weights weights, DeepseekV41Rope rope)
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
    const int64_t heads = weights_.groups.size() * (config_.num_heads / config_.o_groups);
    // The streams, a sublayer's input and output and two sublayers' coefficients, for all tokens
    // and for the rows with logits.
    const int64_t row_bytes =
        ((kStreams + 2) * h + 2 * ops::kHyperMixes) * static_cast<int64_t>(sizeof(float));
    const int64_t sublayer = std::max(
        {DeepseekV41AttentionLayer::WorkspaceBytes(config_, heads, max_tokens, facts_.max_context),
         ops::MoeWorkspaceBytes(
             weights_.moe, static_cast<int64_t>(weights_.layers[0].experts.experts.down.size()),
             max_tokens),
         EngramBytes(max_tokens)});
    return DeepseekV41StepBytes(config_, cache_, max_tokens) +
           (max_tokens + max_logits) * row_bytes + sublayer +
           ops::HyperWorkspaceBytes(max_tokens, h) +
           12 * static_cast<int64_t>(Workspace::kAlignment);
  }

  void Forward(const ForwardBatch& batch, const ForwardContext& context) override {
    DCHECK_EQ(batch.rows.size(), cache_.layout().groups.size());
    Workspace& workspace = *context.workspace;
    const size_t mark = workspace.mark();
    const DeepseekV41Step step = MakeDeepseekV41Step(config_, cache_, rope_, batch, workspace);
    Rows rows = TakeRows(workspace, batch.num_tokens);
    ops::Embedding(context.stream,
                   {.out = rows.input, .ids = batch.token_ids, .table = weights_.embedding});
    ops::HyperExpand(context.stream, rows.streams, rows.input);
    StartPre(rows);
    if (!config_.engrams.empty()) {
      ops::EngramRemember(context.stream, History(batch, context), batch.token_ids,
                          weights_.engram_token_map.data());
    }
    const int last = config_.num_layers - 1;
    for (int layer = 0; layer < last; ++layer) {
      AttendLayer(batch, context, step, layer, rows);
      ChooseExperts(context, layer, rows);
    }
    AttendLayer(batch, context, step, last, rows);
    if (batch.num_logits > 0) {
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
    TensorView coefficients;  // [T, 24], of the sublayer that runs
    TensorView previous;      // [T, 24], of the one before: its pre collapses the streams
  };

  const DeepseekV41Layer& Layer(int layer) const {
    return weights_.layers[static_cast<size_t>(layer)];
  }

  Rows TakeRows(Workspace& workspace, int64_t count) const {
    const int64_t h = config_.hidden_size;
    return {.streams = workspace.Take(DType::kF32, {count, kStreams, h}),
            .input = workspace.Take(DType::kF32, {count, h}),
            .part = workspace.Take(DType::kF32, {count, h}),
            .coefficients = workspace.Take(DType::kF32, {count, ops::kHyperMixes}),
            .previous = workspace.Take(DType::kF32, {count, ops::kHyperMixes})};
  }

  // The streams are equal at the start: the first alone is their sum.
  static void StartPre(const Rows& rows) {
    float* pre = rows.previous.as<float>();
    for (int64_t t = 0; t < rows.previous.shape[0]; ++t, pre += ops::kHyperMixes) {
      std::fill_n(pre, kStreams, 0.0f);
      pre[0] = 1.0f;
    }
  }

  ops::EngramHistory History(const ForwardBatch& batch, const ForwardContext& context) const {
    const auto group = static_cast<size_t>(cache_.engram_group());
    return {.base = context.pools[group],
            .page_stride = cache_.page_bytes(cache_.engram_group()),
            .page_tokens = cache_.layout().page_tokens,
            .rows = batch.rows[group],
            .positions = batch.positions};
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
                 Rows& rows) const {
    const EngramWeights& engram = *Layer(layer).engram;
    const ops::EngramHash& hash = config_.engrams[static_cast<size_t>(config_.engram_of(layer))];
    Workspace& workspace = *context.workspace;
    const size_t mark = workspace.mark();
    const TensorView gathered = workspace.Take(
        DType::kF32, {batch.num_tokens, hash.rows_per_token() * config_.engram_width});
    const TensorView kv =
        workspace.Take(DType::kF32, {batch.num_tokens, (kStreams + 1) * config_.hidden_size});
    ops::EngramGather(
        context.stream,
        {.out = gathered,
         .table = engram.table,
         .scales = engram.scales,
         .hash = &hash,
         .history = History(batch, context),
         .padding = weights_.engram_token_map[static_cast<size_t>(config_.engram_padding_id)]});
    Apply(context.stream, workspace, engram.kv, gathered, kv);
    ops::EngramGate(context.stream, {.streams = rows.streams,
                                     .kv = kv,
                                     .q_weight = Floats(engram.q_weight),
                                     .k_weight = Floats(engram.k_weight)});
    workspace.ResetTo(mark);
  }

  void Enter(const ForwardContext& context, const HyperWeights& hyper, const Buffer& norm,
             Rows& rows) const {
    ops::HyperEnter(
        context.stream, *context.workspace,
        {.out = rows.input,
         .coefficients = rows.coefficients,
         .streams = rows.streams,
         .weights = hyper.View(config_.norm_eps, config_.hyper_eps, config_.hyper_iterations),
         .norm = Floats(norm),
         .pre = rows.previous.as<float>(),
         .pre_stride = ops::kHyperMixes});
  }

  void Leave(const ForwardContext& context, Rows& rows) const {
    context.group->AllReduce(context.stream, rows.part);
    ops::HyperLeave(context.stream,
                    {.streams = rows.streams, .y = rows.part, .coefficients = rows.coefficients});
    std::swap(rows.coefficients, rows.previous);
  }

  void AttendLayer(const ForwardBatch& batch, const ForwardContext& context,
                   const DeepseekV41Step& step, int layer, Rows& rows) const {
    if (Layer(layer).engram) AddEngram(batch, context, layer, rows);
    Enter(context, Layer(layer).attention_hyper, Layer(layer).attention_norm, rows);
    const DeepseekV41AttentionLayer attention(config_, cache_, Layer(layer).attention, layer);
    const bool is_last = layer + 1 == config_.num_layers;
    if (is_last && batch.num_logits == 0) {
      attention.Append(batch, context, step, rows.input);
      return;
    }
    attention.Run(batch, context, step, rows.input, rows.part);
    Leave(context, rows);
  }

  void ChooseExperts(const ForwardContext& context, int layer, Rows& rows) const {
    Enter(context, Layer(layer).ffn_hyper, Layer(layer).ffn_norm, rows);
    ops::Moe(context.stream, *context.workspace,
             {.out = rows.part,
              .x = rows.input,
              .config = &weights_.moe,
              .weights = &Layer(layer).experts});
    Leave(context, rows);
  }

  // After its attention, the last layer computes only what the logits need.
  Rows KeepLogitRows(const ForwardBatch& batch, Workspace& workspace, const Rows& all) const {
    if (batch.num_logits == batch.num_tokens) return all;
    Rows kept = TakeRows(workspace, batch.num_logits);
    GatherRows(all.streams, batch.logits_index, kStreams * config_.hidden_size, kept.streams);
    GatherRows(all.previous, batch.logits_index, ops::kHyperMixes, kept.previous);
    return kept;
  }

  void WriteLogits(const ForwardBatch& batch, const ForwardContext& context,
                   const Rows& rows) const {
    if (!weights_.head.weights) return;
    ops::HyperCollapse(context.stream, *context.workspace,
                       {.out = rows.input,
                        .streams = rows.streams,
                        .pre = rows.previous.as<float>(),
                        .pre_stride = ops::kHyperMixes,
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

  const DeepseekV41Config config_;
  const ModelFacts facts_;
  const DeepseekV41Cache cache_;
  const DeepseekV41Weights weights_;
  const DeepseekV41Rope rope_;
  const int64_t weight_bytes_;
};

}  // namespace

Result<std::unique_ptr<Model>> LoadDeepseekV41(const weights::Checkpoint& checkpoint,
                                               const LoadOptions& options) {
  if (options.device->kind() != DeviceKind::kCpu) {
    return Error(ErrorCode::kUnsupported, "{} runs on the CPU alone", checkpoint.architecture());
  }
  ASSIGN_OR_RETURN(const DeepseekV41Config config, ReadDeepseekV41Config(checkpoint));
  if (options.max_context > config.trained_context) {
    return Error(ErrorCode::kInvalidArgument,
                 "a context of {} tokens; the model was made for at most {}", options.max_context,
                 config.trained_context);
  }
  const int32_t max_context =
      options.max_context > 0 ? options.max_context : config.trained_context;
  ASSIGN_OR_RETURN(DeepseekV41Rope rope, DeepseekV41Rope::Create(config, max_context));
  ASSIGN_OR_RETURN(DeepseekV41Cache cache, DeepseekV41Cache::Plan(config, options));
  ASSIGN_OR_RETURN(DeepseekV41Weights weights, LoadDeepseekV41Weights(checkpoint, config, options));
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
  return std::unique_ptr<Model>(std::make_unique<DeepseekV41Model>(
      config, std::move(facts), std::move(cache), std::move(weights), std::move(rope)));
}

}  // namespace hayate::models
