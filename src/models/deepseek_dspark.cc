#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/error.h"
#include "models/deepseek_draft.h"
#include "models/detail/deepseek_draft_layer.h"
#include "models/layers/activation.h"
#include "models/layers/embedding_table.h"
#include "ops/drafting/draft_logits.h"
#include "ops/embedding/embedding.h"
#include "ops/gather/copy_columns.h"
#include "ops/norm/rms_norm.h"

namespace hayate::models {
namespace {

constexpr auto kFloat = static_cast<int64_t>(sizeof(float));

const float* Floats(const Buffer& buffer) { return reinterpret_cast<const float*>(buffer.data()); }

struct DsparkWeights {
  Linear context;       // [H, targets · H]
  Buffer context_norm;  // [H]
  TrunkShards shards;   // of the blocks
  ops::MoeConfig moe;
  std::vector<HyperLayer> blocks;
  HyperWeights head_hyper;   // V4 alone
  Buffer final_norm;         // [H]
  EmbeddingTable markov_in;  // [V, rank]
  Linear markov_out;         // [vocab.size(), rank]
  Buffer confidence;         // [H + rank]

  int64_t bytes() const {
    int64_t total = context.bytes() + head_hyper.bytes() + markov_out.bytes() +
                    static_cast<int64_t>(context_norm.size() + final_norm.size() +
                                         confidence.size() + markov_in.storage.size());
    for (const HyperLayer& block : blocks) total += block.bytes();
    return total;
  }
};

class DeepseekDspark final : public DraftModel {
 public:
  DeepseekDspark(const DeepseekTrunkModel& target, DsparkWeights weights, DType activations)
      : target_(target),
        config_(target.config()),
        draft_(target.drafts()),
        weights_(std::move(weights)),
        window_(target, draft_.num_blocks),
        streams_(config_, activations) {}

  const std::vector<CacheGroup>& cache_groups() const override { return window_.groups(); }
  int64_t page_bytes(int) const override { return window_.groups()[0].page_bytes; }
  int32_t max_drafts() const override { return draft_.block_size; }
  bool has_confidence() const override { return true; }
  int64_t weight_bytes() const override { return weights_.bytes(); }

  int64_t workspace_bytes(int64_t max_tokens, int64_t max_proposals) const override {
    const int64_t h = config_.hidden_size, queries = max_proposals * draft_.block_size;
    const int64_t context = max_tokens * (FeatureWidth() + h + config_.rotary_dim + 1) * kFloat +
                            ops::MatmulWorkspaceBytes(max_tokens, FeatureWidth()) +
                            WindowAttentionBytes(config_, 0, max_tokens, 0);
    const int64_t heads = weights_.shards.groups.size() * config_.group_heads();
    const int64_t block =
        BlockPagesBytes(max_proposals) + BlockStepBytes(queries) + streams_.RowsBytes(queries) +
        queries * h * kFloat +
        WindowAttentionBytes(config_, heads, queries, config_.window + draft_.block_size) +
        streams_.WorkspaceBytes(weights_.moe, weights_.shards.experts.experts.size(), queries);
    const int64_t guess =
        max_proposals * (weights_.shards.vocab.size() + draft_.markov_rank) * kFloat +
        ops::MatmulWorkspaceBytes(max_proposals, draft_.markov_rank);
    const int64_t kept =
        queries * (h + weights_.shards.vocab.size()) * kFloat + ProposalBytes(max_proposals);
    return kept + std::max({context, block, guess}) +
           24 * static_cast<int64_t>(Workspace::kAlignment);
  }

  void Advance(const DraftBatch& batch, const ForwardContext& context) override {
    AppendContext(batch, context);
    Workspace& workspace = *context.workspace;
    count_ = batch.num_proposals;
    if (count_ == 0) return;
    const int64_t queries = int64_t{count_} * draft_.block_size;
    states_ = workspace.Take(DType::kF32, {queries, config_.hidden_size});
    logits_ = workspace.Take(DType::kF32, {queries, weights_.shards.vocab.size()});
    const size_t mark = workspace.mark();
    RunBlocks(batch, context);
    workspace.ResetTo(mark);
  }

  void Next(int32_t i, const int32_t* tokens, float* logits, float* confidences,
            const ForwardContext& context) override {
    if (count_ == 0) return;
    Workspace& workspace = *context.workspace;
    const size_t mark = workspace.mark();
    const int64_t vocab = weights_.shards.vocab.size();
    const TensorView before = workspace.Take(DType::kF32, {count_, draft_.markov_rank});
    ops::Embedding(context.stream,
                   {.out = before, .ids = tokens, .table = weights_.markov_in.view});
    const TensorView added = workspace.Take(DType::kF32, {count_, vocab});
    if (vocab > 0) Apply(context.stream, workspace, weights_.markov_out, before, added);
    ops::MarkovGuess(context.stream, {.logits = logits + weights_.shards.vocab.begin,
                                      .logits_stride = config_.vocab_size,
                                      .confidences = confidences,
                                      .base = logits_,
                                      .added = added,
                                      .states = states_,
                                      .before = before,
                                      .proj = Floats(weights_.confidence),
                                      .block = draft_.block_size,
                                      .guess = i});
    workspace.ResetTo(mark);
  }

 private:
  int64_t FeatureWidth() const {
    return static_cast<int64_t>(draft_.targets.size()) * config_.hidden_size;
  }
  int64_t BlockPagesBytes(int64_t proposals) const {
    return proposals * window_.Pages(draft_.block_size, nullptr).page_stride;
  }
  int64_t BlockStepBytes(int64_t queries) const {
    const int64_t words = 5 + 2 * config_.rotary_dim + draft_.block_size + 2;
    return queries * words * static_cast<int64_t>(sizeof(int32_t));
  }

  // The committed tokens' rows in every block's window.
  void AppendContext(const DraftBatch& batch, const ForwardContext& context) const {
    Workspace& workspace = *context.workspace;
    const size_t mark = workspace.mark();
    const TensorView features = workspace.Take(DType::kF32, {batch.num_tokens, FeatureWidth()});
    const TensorView x = workspace.Take(DType::kF32, {batch.num_tokens, config_.hidden_size});
    GatherFeatures(context.stream, batch, features);
    Apply(context.stream, workspace, weights_.context, features, x);
    ops::RmsNorm(
        context.stream,
        {.out = x, .x = x, .weight = Floats(weights_.context_norm), .eps = config_.norm_eps});
    const float* cos_sin = TakeRotations(context.stream, target_.rope().window, batch.positions,
                                         batch.num_tokens, workspace);
    const ops::LatentTargets targets = TakeTokenTargets(
        context.stream, batch.rows[0], batch.num_tokens, batch.positions, workspace);
    for (int32_t block = 0; block < draft_.num_blocks; ++block) {
      AppendWindowRows(context, config_, Block(block).attention, x, cos_sin,
                       window_.Rows(block, context.pools[0]), batch.rows[0], targets);
    }
    workspace.ResetTo(mark);
  }

  // What the blocks share in one pass: N rows of B queries each, whose token ids are written too.
  struct Pass {
    const float* cos_sin = nullptr;        // [N · B, R], of p + 1 …
    const int32_t* context_end = nullptr;  // [N · B] p: the newest position of the context
    ops::AttentionRows context_rows;
    ops::AttentionRows block_rows;  // a page of B rows per proposal
    ops::LatentTargets block_targets;
    ops::LatentLayerView block_keys;
    const int32_t* selected = nullptr;  // [N · B, B] all keys of the block
    const int32_t* selected_count = nullptr;
  };

  Pass MakePass(Stream stream, const DraftBatch& batch, int32_t* ids, Workspace& workspace) const {
    const int32_t block = draft_.block_size, queries = count_ * block;
    const ProposalRows proposals = TakeProposals(stream, batch, workspace);
    int32_t* positions = workspace.TakeArray<int32_t>(queries);
    int32_t* context_end = workspace.TakeArray<int32_t>(queries);
    int32_t* seq = workspace.TakeArray<int32_t>(queries);
    int32_t* index = workspace.TakeArray<int32_t>(queries);
    int32_t* selected = workspace.TakeArray<int32_t>(int64_t{queries} * block);
    int32_t* selected_count = workspace.TakeArray<int32_t>(queries);
    int32_t* pages = workspace.TakeArray<int32_t>(count_);
    ops::ListDraftBlocks(stream, {.count = count_,
                                  .block = block,
                                  .noise_token = draft_.noise_token,
                                  .last_positions = proposals.positions,
                                  .anchors = proposals.anchors,
                                  .token_ids = ids,
                                  .positions = positions,
                                  .context_end = context_end,
                                  .row = seq,
                                  .place = index,
                                  .selected = selected,
                                  .selected_count = selected_count,
                                  .pages = pages});
    Pass pass = {
        .cos_sin = TakeRotations(stream, target_.rope().window, positions, queries, workspace),
        .context_end = context_end,
        .context_rows = TakeProposalRows(stream, batch, batch.rows[0], block, 0, workspace),
        .block_targets = {queries, seq, index},
        .block_keys = window_.Pages(block, workspace.TakeArray<std::byte>(BlockPagesBytes(count_))),
        .selected = selected,
        .selected_count = selected_count};
    pass.block_rows = pass.context_rows;
    pass.block_rows.page_table = pages;
    pass.block_rows.page_table_stride = 1;
    pass.block_rows.table_row = nullptr;
    return pass;
  }

  // states_ and logits_ of every query.
  void RunBlocks(const DraftBatch& batch, const ForwardContext& context) {
    Workspace& workspace = *context.workspace;
    const int32_t queries = count_ * draft_.block_size;
    int32_t* ids = workspace.TakeArray<int32_t>(queries);
    const Pass pass = MakePass(context.stream, batch, ids, workspace);
    StreamRows rows = streams_.Take(workspace, queries);
    streams_.Start(context, target_.trunk().embedding.view, ids, rows);
    for (int32_t block = 0; block < draft_.num_blocks; ++block)
      RunBlock(context, pass, block, rows);
    streams_.Collapse(context, &weights_.head_hyper, nullptr, rows);
    ops::CopyColumns(context.stream, {.out = states_, .from = rows.input});
    ops::RmsNorm(context.stream, {.out = rows.input,
                                  .x = rows.input,
                                  .weight = Floats(weights_.final_norm),
                                  .eps = config_.norm_eps});
    const Linear& head = target_.trunk().head;
    if (head.weights) Apply(context.stream, workspace, head, rows.input, logits_);
  }

  void RunBlock(const ForwardContext& context, const Pass& pass, int32_t index,
                StreamRows& rows) const {
    Workspace& workspace = *context.workspace;
    const size_t mark = workspace.mark();
    const HyperLayer& block = Block(index);
    streams_.Enter(context, block.attention_hyper, block.attention_norm, rows);
    AppendWindowRows(context, config_, block.attention, rows.input, pass.cos_sin, pass.block_keys,
                     pass.block_rows, pass.block_targets);
    AttendLatents(context, config_, block.attention,
                  TakeQueryLatent(context, config_, block.attention, rows.input), pass.cos_sin,
                  {.positions = pass.context_end,
                   .window_cache = window_.Rows(index, context.pools[0]),
                   .window_rows = pass.context_rows,
                   .window = config_.window,
                   .entry_cache = pass.block_keys,
                   .entry_rows = pass.block_rows,
                   .ratio = 1,
                   .selected = pass.selected,
                   .selected_count = pass.selected_count,
                   .selected_stride = draft_.block_size},
                  rows.part);
    streams_.Leave(context, rows);
    streams_.RunExperts(context, block, weights_.moe, rows);
    workspace.ResetTo(mark);
  }

  const HyperLayer& Block(int32_t index) const {
    return weights_.blocks[static_cast<size_t>(index)];
  }

  const DeepseekTrunkModel& target_;
  const DeepseekTrunkConfig& config_;
  const DeepseekDraftConfig& draft_;
  const DsparkWeights weights_;
  const DraftWindow window_;
  const DeepseekStreams streams_;

  // From Advance to the last Next, in the step's workspace.
  int32_t count_ = 0;  // N
  TensorView states_;  // [N · B, H] before the norm
  TensorView logits_;  // [N · B, vocab.size()] without the guess before
};

// V4 and V4.1 name the tables differently.
Status LoadMarkov(VendorTensors& tensors, const DeepseekTrunkConfig& config, int32_t rank,
                  const std::string& prefix, DsparkWeights& weights) {
  const bool v4 = tensors.Has(prefix + ".markov_w1.weight");
  const std::string in = prefix + (v4 ? ".markov_w1" : ".embed");
  const std::string out = prefix + (v4 ? ".markov_w2" : ".head");
  ASSIGN_OR_RETURN(const ConstTensorView table,
                   tensors.Tensor(in + ".weight", {config.vocab_size, rank}));
  ASSIGN_OR_RETURN(weights.markov_in, PlaceTable(*tensors.options().device, table));
  ASSIGN_OR_RETURN(weights.markov_out,
                   tensors.Matrix({{out, config.vocab_size, weights.shards.vocab}}, rank, {0, rank},
                                  tensors.options().precision));
  return OkStatus();
}

Result<DsparkWeights> LoadWeights(const weights::Checkpoint& checkpoint, const LoadOptions& options,
                                  const DeepseekTrunkModel& target) {
  const DeepseekTrunkConfig& config = target.config();
  const DeepseekDraftConfig& draft = target.drafts();
  VendorTensors tensors(checkpoint, options, config.tile);
  const int64_t h = config.hidden_size, wide = static_cast<int64_t>(draft.targets.size()) * h;
  DsparkWeights weights;
  weights.shards = target.trunk().shards;
  weights.shards.experts =
      SplitExperts(config.hidden_size, draft.num_experts, config.expert_ffn, options);
  weights.moe = MoeConfigOf(config, weights.shards.experts, draft.experts_per_token);
  ASSIGN_OR_RETURN(weights.context, tensors.Matrix("mtp.0.main_proj", h, wide, options.precision));
  ASSIGN_OR_RETURN(weights.context_norm, tensors.Floats("mtp.0.main_norm.weight", {h}));
  weights.blocks.resize(static_cast<size_t>(draft.num_blocks));
  for (int32_t block = 0; block < draft.num_blocks; ++block) {
    RETURN_IF_ERROR(LoadDraftLayer(tensors, config, weights.shards, "mtp." + std::to_string(block),
                                   weights.blocks[static_cast<size_t>(block)]));
  }
  const std::string last = "mtp." + std::to_string(draft.num_blocks - 1);
  if (config.stream_entry == StreamEntry::kOwn) {
    ASSIGN_OR_RETURN(weights.head_hyper,
                     LoadHyper(tensors, last + ".hc_head", ops::kHyperStreams, 1, h));
  }
  ASSIGN_OR_RETURN(weights.final_norm, tensors.Floats(last + ".norm.weight", {h}));
  RETURN_IF_ERROR(LoadMarkov(tensors, config, draft.markov_rank, last + ".markov_head", weights));
  ASSIGN_OR_RETURN(weights.confidence, tensors.Floats(last + ".confidence_head.proj.weight",
                                                      {1, h + draft.markov_rank}));
  return weights;
}

}  // namespace

Result<std::unique_ptr<DraftModel>> LoadDeepseekDspark(const weights::Checkpoint& checkpoint,
                                                       const LoadOptions& options,
                                                       const Model& target) {
  const auto* trunk = dynamic_cast<const DeepseekTrunkModel*>(&target);
  if (trunk == nullptr) {
    return Error(ErrorCode::kUnsupported, "{} has no DSpark drafts", checkpoint.architecture());
  }
  CHECK(trunk->drafts().kind == DraftKind::kDspark) << "the target was loaded for another drafter";
  ASSIGN_OR_RETURN(DsparkWeights weights, LoadWeights(checkpoint, options, *trunk));
  return std::unique_ptr<DraftModel>(std::make_unique<DeepseekDspark>(
      *trunk, std::move(weights), ActivationType(*options.device, options.precision)));
}

}  // namespace hayate::models
