#include <utility>

#include "base/check.h"
#include "base/error.h"
#include "models/deepseek_draft.h"
#include "models/detail/deepseek_draft_layer.h"
#include "models/layers/activation.h"
#include "ops/embedding/embedding.h"
#include "ops/gather/gather_rows.h"
#include "ops/norm/rms_norm.h"

namespace hayate::models {
namespace {

constexpr int64_t kStreams = ops::kHyperStreams;
constexpr auto kFloat = static_cast<int64_t>(sizeof(float));

const float* Floats(const Buffer& buffer) { return reinterpret_cast<const float*>(buffer.data()); }

struct MtpWeights {
  TrunkShards shards;  // of the block
  ops::MoeConfig moe;
  Linear token, state;            // [H, H]: e_proj, h_proj
  Buffer token_norm, state_norm;  // [H]
  HyperLayer layer;
  HyperWeights head_hyper;
  Buffer final_norm;  // [H]

  int64_t bytes() const {
    return token.bytes() + state.bytes() + layer.bytes() + head_hyper.bytes() +
           static_cast<int64_t>(token_norm.size() + state_norm.size() + final_norm.size());
  }
};

class DeepseekMtp final : public DraftModel {
 public:
  DeepseekMtp(const DeepseekTrunkModel& target, MtpWeights weights, int32_t max_drafts,
              DType activations)
      : target_(target),
        config_(target.config()),
        weights_(std::move(weights)),
        window_(target, 1),
        streams_(config_, activations),
        max_drafts_(max_drafts) {}

  const std::vector<CacheGroup>& cache_groups() const override { return window_.groups(); }
  int64_t page_bytes(int) const override { return window_.groups()[0].page_bytes; }
  int32_t max_drafts() const override { return max_drafts_; }
  bool has_confidence() const override { return false; }
  int64_t weight_bytes() const override { return weights_.bytes(); }

  int64_t workspace_bytes(int64_t max_tokens, int64_t max_proposals) const override {
    const int64_t h = config_.hidden_size;
    const TrunkShards& shards = weights_.shards;
    const int64_t heads = shards.groups.size() * config_.group_heads();
    // Of all tokens: features as they came and normed, embeddings normed and projected, rotations.
    const int64_t floats = max_tokens * (2 * kStreams * h + 4 * h + config_.rotary_dim + 1);
    return floats * kFloat + ProposalBytes(max_proposals) + streams_.RowsBytes(max_tokens) +
           2 * streams_.RowsBytes(max_proposals) +
           WindowAttentionBytes(config_, heads, max_tokens, config_.window) +
           streams_.WorkspaceBytes(weights_.moe, shards.experts.experts.size(), max_tokens) +
           ops::MatmulWorkspaceBytes(kStreams * max_tokens, h) +
           16 * static_cast<int64_t>(Workspace::kAlignment);
  }

  void Advance(const DraftBatch& batch, const ForwardContext& context) override {
    Workspace& workspace = *context.workspace;
    proposals_ = TakeProposals(context.stream, batch, workspace);
    proposal_rows_ =
        TakeProposalRows(context.stream, batch, batch.rows[0], 1, max_drafts_, workspace);
    positions_ = workspace.TakeArray<int32_t>(proposals_.count);
    PlaceProposals(context.stream, 0);
    rows_ = streams_.Take(workspace, proposals_.count);
    const size_t mark = workspace.mark();
    const TensorView features =
        workspace.Take(DType::kF32, {batch.num_tokens, kStreams * config_.hidden_size});
    GatherFeatures(context.stream, batch, features);
    StreamRows all = streams_.Take(workspace, batch.num_tokens);
    Join(context, features, batch.next_ids, all);
    EnterLayer(context, batch.rows[0], batch.positions, all);
    if (proposals_.count > 0) {
      // Rows keep the sublayer's input and coefficients, so that the layer goes on with them.
      Copy(context.stream, all, proposals_.last, rows_);
      FinishLayer(context, rows_);
    }
    workspace.ResetTo(mark);
  }

  void Next(int32_t i, const int32_t* tokens, float* logits, float*,
            const ForwardContext& context) override {
    if (proposals_.count == 0) return;
    Workspace& workspace = *context.workspace;
    const size_t mark = workspace.mark();
    if (i > 0) {
      const TensorView before =
          workspace.Take(DType::kF32, {proposals_.count, kStreams * config_.hidden_size});
      context.stream.device->Copy(context.stream, before.data, rows_.streams.data,
                                  static_cast<size_t>(before.num_bytes()));
      PlaceProposals(context.stream, i);
      Join(context, before, tokens, rows_);
      EnterLayer(context, proposal_rows_, positions_, rows_);
      FinishLayer(context, rows_);
    }
    streams_.Collapse(context, &weights_.head_hyper, &weights_.final_norm, rows_);
    WriteHeadLogits(context, target_.trunk(), config_.vocab_size, rows_.input, logits);
    workspace.ResetTo(mark);
  }

 private:
  // positions_ of the proposing rows' entry of guess i.
  void PlaceProposals(Stream stream, int32_t i) {
    ops::ShiftPositions(stream, {.from = proposals_.positions,
                                 .count = proposals_.count,
                                 .by = i,
                                 .positions = positions_});
  }

  // rows.streams[j] = state · norm(states[j]) + token · norm(embedding): states [T, 4H].
  void Join(const ForwardContext& context, const TensorView& states, const int32_t* token_ids,
            StreamRows& rows) const {
    Workspace& workspace = *context.workspace;
    const size_t mark = workspace.mark();
    const int64_t count = rows.count(), h = config_.hidden_size;
    const TensorView each{states.data, DType::kF32, {count * kStreams, h}};
    const TensorView joined{rows.streams.data, DType::kF32, {count * kStreams, h}};
    ops::RmsNorm(
        context.stream,
        {.out = each, .x = each, .weight = Floats(weights_.state_norm), .eps = config_.norm_eps});
    Apply(context.stream, workspace, weights_.state, each, joined);
    const TensorView token = workspace.Take(DType::kF32, {count, h});
    ops::Embedding(context.stream,
                   {.out = token, .ids = token_ids, .table = target_.trunk().embedding.view});
    ops::RmsNorm(
        context.stream,
        {.out = token, .x = token, .weight = Floats(weights_.token_norm), .eps = config_.norm_eps});
    const TensorView added = workspace.Take(DType::kF32, {count, h});
    Apply(context.stream, workspace, weights_.token, token, added);
    ops::HyperAdd(context.stream, rows.streams, added);
    workspace.ResetTo(mark);
  }

  // The layer up to its attention, whose rows are appended.
  void EnterLayer(const ForwardContext& context, const ops::AttentionRows& rows,
                  const int32_t* positions, StreamRows& all) const {
    Workspace& workspace = *context.workspace;
    const size_t mark = workspace.mark();
    streams_.Enter(context, weights_.layer.attention_hyper, weights_.layer.attention_norm, all);
    const auto count = static_cast<int32_t>(all.count());
    const float* cos_sin =
        TakeRotations(context.stream, target_.rope().window, positions, count, workspace);
    AppendWindowRows(context, config_, weights_.layer.attention, all.input, cos_sin,
                     window_.Rows(0, context.pools[0]), rows,
                     TakeTokenTargets(context.stream, rows, count, positions, workspace));
    workspace.ResetTo(mark);
  }

  // The rest of the layer, for the rows that want guesses at positions_.
  void FinishLayer(const ForwardContext& context, StreamRows& rows) const {
    Workspace& workspace = *context.workspace;
    const size_t mark = workspace.mark();
    const float* cos_sin = TakeRotations(context.stream, target_.rope().window, positions_,
                                         proposals_.count, workspace);
    const HyperLayer& layer = weights_.layer;
    AttendLatents(context, config_, layer.attention,
                  TakeQueryLatent(context, config_, layer.attention, rows.input), cos_sin,
                  {.positions = positions_,
                   .window_cache = window_.Rows(0, context.pools[0]),
                   .window_rows = proposal_rows_,
                   .window = config_.window},
                  rows.part);
    streams_.Leave(context, rows);
    streams_.RunExperts(context, layer, weights_.moe, rows);
    workspace.ResetTo(mark);
  }

  static void Copy(Stream stream, const StreamRows& all, const int32_t* index, StreamRows& to) {
    const auto flat = [](const TensorView& x) {
      const int64_t rows = x.shape[0];
      return TensorView{x.data, x.dtype, {rows, x.shape.num_elements() / rows}};
    };
    const auto copy = [&](const TensorView& from, const TensorView& out) {
      ops::GatherRows(stream, {.out = flat(out), .from = flat(from), .index = index});
    };
    copy(all.streams, to.streams);
    copy(all.input, to.input);
    copy(all.coefficients, to.coefficients);
  }

  const DeepseekTrunkModel& target_;
  const DeepseekTrunkConfig& config_;
  const MtpWeights weights_;
  const DraftWindow window_;
  const DeepseekStreams streams_;
  const int32_t max_drafts_;

  // From Advance to the last Next, in the step's workspace.
  ProposalRows proposals_;
  ops::AttentionRows proposal_rows_;
  int32_t* positions_ = nullptr;  // [N] of the latest entry
  StreamRows rows_;               // [N] behind the layer
};

Result<MtpWeights> LoadWeights(const weights::Checkpoint& checkpoint, const LoadOptions& options,
                               const DeepseekTrunkModel& target) {
  const DeepseekTrunkConfig& config = target.config();
  VendorTensors tensors(checkpoint, options, config.tile);
  const int64_t h = config.hidden_size;
  MtpWeights weights;
  weights.shards = ShardTrunk(config, options);
  weights.moe = MoeConfigOf(config, weights.shards.experts, config.experts_per_token);
  ASSIGN_OR_RETURN(weights.token, tensors.Matrix("mtp.0.e_proj", h, h, options.precision));
  ASSIGN_OR_RETURN(weights.state, tensors.Matrix("mtp.0.h_proj", h, h, options.precision));
  ASSIGN_OR_RETURN(weights.token_norm, tensors.Floats("mtp.0.enorm.weight", {h}));
  ASSIGN_OR_RETURN(weights.state_norm, tensors.Floats("mtp.0.hnorm.weight", {h}));
  RETURN_IF_ERROR(LoadDraftLayer(tensors, config, weights.shards, "mtp.0", weights.layer));
  ASSIGN_OR_RETURN(weights.head_hyper,
                   LoadHyper(tensors, "mtp.0.hc_head", ops::kHyperStreams, 1, h));
  ASSIGN_OR_RETURN(weights.final_norm, tensors.Floats("mtp.0.norm.weight", {h}));
  return weights;
}

}  // namespace

Result<std::unique_ptr<DraftModel>> LoadDeepseekMtp(const weights::Checkpoint& checkpoint,
                                                    const LoadOptions& options,
                                                    const Model& target) {
  const auto* trunk = dynamic_cast<const DeepseekTrunkModel*>(&target);
  CHECK(trunk != nullptr && trunk->drafts().kind == DraftKind::kNextN)
      << "the target was loaded for another drafter";
  ASSIGN_OR_RETURN(MtpWeights weights, LoadWeights(checkpoint, options, *trunk));
  return std::unique_ptr<DraftModel>(
      std::make_unique<DeepseekMtp>(*trunk, std::move(weights), options.max_drafts,
                                    ActivationType(*options.device, options.precision)));
}

}  // namespace hayate::models
