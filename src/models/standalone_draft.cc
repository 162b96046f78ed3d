#include "models/standalone_draft.h"

#include <utility>

#include "base/error.h"
#include "models/detail/deepseek_draft_rows.h"

namespace hayate::models {
namespace {

constexpr auto kInt = static_cast<int64_t>(sizeof(int32_t));

class StandaloneDraft final : public DraftModel {
 public:
  StandaloneDraft(std::unique_ptr<Model> model, int32_t max_drafts)
      : model_(std::move(model)),
        max_drafts_(max_drafts),
        groups_(model_->cache_layout().groups),
        rows_(groups_.size()) {
    // Beside the target's, which may be of the same architecture.
    for (CacheGroup& group : groups_) group.name.insert(0, "draft_");
  }

  const std::vector<CacheGroup>& cache_groups() const override { return groups_; }
  int64_t page_bytes(int group) const override { return model_->page_bytes(group); }
  int32_t max_drafts() const override { return max_drafts_; }
  bool has_confidence() const override { return false; }
  int64_t workspace_bytes(int64_t max_tokens, int64_t max_proposals) const override {
    const int64_t tokens = max_tokens + max_proposals;
    return model_->workspace_bytes(tokens, max_proposals) +
           (2 * tokens + 4 * (max_proposals + 1)) * kInt + ProposalBytes(max_proposals) +
           6 * static_cast<int64_t>(Workspace::kAlignment);
  }
  int64_t weight_bytes() const override { return model_->weight_bytes(); }

  void Advance(const DraftBatch& batch, const ForwardContext& context) override;
  void Next(int32_t i, const int32_t* tokens, float* logits, float* confidences,
            const ForwardContext& context) override;

 private:
  // One pass over rows of the batch's page tables.
  void Forward(ForwardBatch pass, const ops::AttentionRows& rows, const ForwardContext& context);

  std::unique_ptr<Model> model_;
  const int32_t max_drafts_;
  std::vector<CacheGroup> groups_;
  std::vector<ops::AttentionRows> rows_;  // per group

  // From Advance to the last Next; arrays in the step's workspace.
  std::vector<ops::AttentionRows> batch_rows_;  // of the last Advance, per group
  ProposalRows proposals_;
  // The batch with its anchors, which Next(0) computes: it knows where logits go.
  ForwardBatch whole_;
  ops::AttentionRows whole_rows_;
  ops::AttentionRows proposal_rows_;
  int32_t *positions_ = nullptr, *kv_len_ = nullptr;  // [N] of the latest guess
};

void StandaloneDraft::Advance(const DraftBatch& batch, const ForwardContext& context) {
  const Stream stream = context.stream;
  Workspace& workspace = *context.workspace;
  batch_rows_.assign(batch.rows.begin(), batch.rows.end());
  const ops::AttentionRows& rows = batch.rows[0];
  const int32_t count = batch.num_proposals;
  proposals_ = TakeProposals(stream, batch, workspace);
  if (count == 0) {
    Forward({.num_tokens = batch.num_tokens,
             .token_ids = batch.token_ids,
             .positions = batch.positions},
            rows, context);
    return;
  }
  proposal_rows_ = TakeProposalRows(stream, batch, rows, 1, 0, workspace);
  positions_ = workspace.TakeArray<int32_t>(count);
  kv_len_ = workspace.TakeArray<int32_t>(count);
  const int32_t tokens = batch.num_tokens + count;
  int32_t* ids = workspace.TakeArray<int32_t>(tokens);
  int32_t* positions = workspace.TakeArray<int32_t>(tokens);
  int32_t* q_begin = workspace.TakeArray<int32_t>(rows.num_rows + 1);
  int32_t* kv_len = workspace.TakeArray<int32_t>(rows.num_rows);
  int32_t* anchors = workspace.TakeArray<int32_t>(count);
  ops::AddAnchors(stream, {.batch = rows,
                           .proposals = ProposalsOf(batch),
                           .num_tokens = batch.num_tokens,
                           .token_ids = batch.token_ids,
                           .positions = batch.positions,
                           .next_ids = batch.next_ids,
                           .out_ids = ids,
                           .out_positions = positions,
                           .q_begin = q_begin,
                           .kv_len = kv_len,
                           .anchors = anchors});
  whole_ = {.num_tokens = tokens,
            .token_ids = ids,
            .positions = positions,
            .num_logits = count,
            .logits_index = anchors};
  whole_rows_ = {
      .num_rows = rows.num_rows, .q_begin = q_begin, .kv_len = kv_len, .table_row = rows.table_row};
}

void StandaloneDraft::Next(int32_t i, const int32_t* tokens, float* logits, float*,
                           const ForwardContext& context) {
  const int32_t count = proposals_.count;
  if (count == 0) return;
  if (i == 0) {
    whole_.logits = logits;
    return Forward(whole_, whole_rows_, context);
  }
  // The anchor is one position behind the row's last token.
  ops::ShiftPositions(context.stream, {.from = proposals_.positions,
                                       .count = count,
                                       .by = i + 1,
                                       .positions = positions_,
                                       .kv_len = kv_len_});
  proposal_rows_.kv_len = kv_len_;
  // Every row is one token: where rows begin is which tokens have logits.
  Forward({.num_tokens = count,
           .token_ids = tokens,
           .positions = positions_,
           .num_logits = count,
           .logits_index = proposal_rows_.q_begin,
           .logits = logits},
          proposal_rows_, context);
}

void StandaloneDraft::Forward(ForwardBatch pass, const ops::AttentionRows& rows,
                              const ForwardContext& context) {
  for (size_t g = 0; g < rows_.size(); ++g) {
    rows_[g] = batch_rows_[g];
    rows_[g].num_rows = rows.num_rows;
    rows_[g].q_begin = rows.q_begin;
    rows_[g].kv_len = rows.kv_len;
    rows_[g].table_row = rows.table_row;
  }
  pass.rows = rows_;
  model_->Forward(pass, context);
}

}  // namespace

Result<std::unique_ptr<DraftModel>> LoadStandaloneDraft(const weights::Checkpoint& checkpoint,
                                                        const LoadOptions& options,
                                                        const Model& target) {
  LoadOptions own = options;
  own.draft = DraftKind::kNone;
  ASSIGN_OR_RETURN(std::unique_ptr<Model> model, LoadModel(checkpoint, own));
  const ModelFacts& facts = model->facts();
  if (facts.vocab_size != target.facts().vocab_size) {
    return Error(ErrorCode::kInvalidArgument,
                 "{}: a vocabulary of {} tokens; the model it drafts for has {}",
                 checkpoint.path().string(), facts.vocab_size, target.facts().vocab_size);
  }
  return std::unique_ptr<DraftModel>(
      std::make_unique<StandaloneDraft>(std::move(model), options.max_drafts));
}

}  // namespace hayate::models
