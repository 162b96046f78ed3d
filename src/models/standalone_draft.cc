#include "models/standalone_draft.h"

#include <utility>

#include "base/error.h"

namespace hayate::models {
namespace {

// On the host: the CPU's pointers.
class StandaloneDraft final : public DraftModel {
 public:
  StandaloneDraft(std::unique_ptr<Model> model, int32_t max_drafts)
      : model_(std::move(model)),
        max_drafts_(max_drafts),
        rows_(model_->cache_layout().groups.size()) {}

  const std::vector<CacheGroup>& cache_groups() const override {
    return model_->cache_layout().groups;
  }
  int64_t page_bytes(int group) const override { return model_->page_bytes(group); }
  int32_t max_drafts() const override { return max_drafts_; }
  bool has_confidence() const override { return false; }
  int64_t workspace_bytes(int64_t max_tokens, int64_t max_proposals) const override {
    return model_->workspace_bytes(max_tokens + max_proposals, max_proposals);
  }
  int64_t weight_bytes() const override { return model_->weight_bytes(); }

  void Advance(const DraftBatch& batch, const ForwardContext& context) override;
  void Next(int32_t i, const int32_t* tokens, float* logits, float* confidences,
            const ForwardContext& context) override;

 private:
  void ClearBatch();
  // Ends a row of the batch whose tokens were appended; its pages are row `source` of batch_rows_.
  void EndRow(int32_t kv_len, int32_t source);
  void Forward(float* logits, const ForwardContext& context);

  std::unique_ptr<Model> model_;
  const int32_t max_drafts_;

  std::vector<ops::AttentionRows> batch_rows_;  // of the last Advance, per group
  std::vector<int32_t> proposal_rows_;          // [N]
  std::vector<int32_t> anchor_positions_;       // [N]
  // The pass being put together.
  std::vector<int32_t> token_ids_, positions_, logits_index_;
  std::vector<int32_t> q_begin_, kv_len_, sources_;
  std::vector<ops::AttentionRows> rows_;  // per group
};

void StandaloneDraft::ClearBatch() {
  token_ids_.clear();
  positions_.clear();
  logits_index_.clear();
  q_begin_.assign(1, 0);
  kv_len_.clear();
  sources_.clear();
}

void StandaloneDraft::EndRow(int32_t kv_len, int32_t source) {
  q_begin_.push_back(static_cast<int32_t>(token_ids_.size()));
  kv_len_.push_back(kv_len);
  sources_.push_back(source);
}

void StandaloneDraft::Advance(const DraftBatch& batch, const ForwardContext& context) {
  batch_rows_.assign(batch.rows.begin(), batch.rows.end());
  proposal_rows_.assign(batch.proposal_rows, batch.proposal_rows + batch.num_proposals);
  anchor_positions_.clear();
  ClearBatch();
  const ops::AttentionRows& rows = batch.rows[0];
  size_t next_proposal = 0;
  for (int32_t r = 0; r < rows.num_rows; ++r) {
    for (int32_t t = rows.q_begin[r]; t < rows.q_begin[r + 1]; ++t) {
      token_ids_.push_back(batch.token_ids[t]);
      positions_.push_back(batch.positions[t]);
    }
    const bool proposes =
        next_proposal < proposal_rows_.size() && proposal_rows_[next_proposal] == r;
    if (proposes) {
      ++next_proposal;
      logits_index_.push_back(static_cast<int32_t>(token_ids_.size()));
      token_ids_.push_back(batch.next_ids[rows.q_begin[r + 1] - 1]);
      positions_.push_back(rows.kv_len[r]);
      anchor_positions_.push_back(rows.kv_len[r]);
    }
    EndRow(rows.kv_len[r] + (proposes ? 1 : 0), r);
  }
  // With proposals the pass waits for Next, which says where its logits go.
  if (proposal_rows_.empty()) Forward(nullptr, context);
}

void StandaloneDraft::Next(int32_t i, const int32_t* tokens, float* logits, float*,
                           const ForwardContext& context) {
  if (i > 0) {
    ClearBatch();
    for (size_t n = 0; n < proposal_rows_.size(); ++n) {
      const int32_t position = anchor_positions_[n] + i;
      logits_index_.push_back(static_cast<int32_t>(n));
      token_ids_.push_back(tokens[n]);
      positions_.push_back(position);
      EndRow(position + 1, proposal_rows_[n]);
    }
  }
  Forward(logits, context);
}

void StandaloneDraft::Forward(float* logits, const ForwardContext& context) {
  for (size_t g = 0; g < rows_.size(); ++g) {
    const ops::AttentionRows& from = batch_rows_[g];
    rows_[g] = from;
    rows_[g].num_rows = static_cast<int32_t>(kv_len_.size());
    rows_[g].q_begin = q_begin_.data();
    rows_[g].kv_len = kv_len_.data();
    rows_[g].table_row = sources_.data();
  }
  model_->Forward({.num_tokens = static_cast<int32_t>(token_ids_.size()),
                   .token_ids = token_ids_.data(),
                   .positions = positions_.data(),
                   .rows = rows_,
                   .num_logits = static_cast<int32_t>(logits_index_.size()),
                   .logits_index = logits_index_.data(),
                   .logits = logits},
                  context);
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
  if (options.device->kind() != DeviceKind::kCpu) {
    return Error(ErrorCode::kUnsupported, "{}: a draft model of its own is for the CPU",
                 checkpoint.path().string());
  }
  return std::unique_ptr<DraftModel>(
      std::make_unique<StandaloneDraft>(std::move(model), options.max_drafts));
}

}  // namespace hayate::models
