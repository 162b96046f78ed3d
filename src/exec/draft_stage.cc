#include "exec/draft_stage.h"

#include <algorithm>

#include "base/align.h"
#include "base/check.h"

namespace hayate::exec {

DraftStage::DraftStage(const Parts& parts, const StepLimits& limits)
    : parts_(parts),
      limits_(limits),
      page_tables_(parts.drafter->cache_groups().size()),
      rows_(page_tables_.size()),
      confidences_(static_cast<size_t>(limits.max_rows)) {
  for (auto& table : page_tables_) {
    table.resize(static_cast<size_t>(limits.max_rows) * static_cast<size_t>(limits.max_slot_pages));
  }
}

void DraftStage::Run(const StepPlan& plan, const StagedStep& staged, const SlotTables& tables,
                     const float* features, const models::ForwardContext& context,
                     std::span<RowResult> results) {
  token_ids_.clear();
  next_ids_.clear();
  positions_.clear();
  feature_rows_.clear();
  q_begin_.clear();
  kv_len_.clear();
  proposal_rows_.clear();
  proposal_plan_rows_.clear();
  const std::span<const int32_t> own = staged.own_rows();
  if (own.empty()) return;
  for (size_t r = 0; r < own.size(); ++r) {
    const auto i = static_cast<size_t>(own[r]);
    AddRow(r, plan.rows[i], staged, results[i]);
    if (!plan.rows[i].proposes || results[i].tokens.empty()) continue;
    proposal_rows_.push_back(static_cast<int32_t>(r));
    proposal_plan_rows_.push_back(own[r]);
  }
  q_begin_.push_back(static_cast<int32_t>(token_ids_.size()));
  GatherPages(plan, staged, tables);
  // The drafter keeps there what its guesses need.
  const size_t mark = context.workspace->mark();
  parts_.drafter->Advance({.num_tokens = static_cast<int32_t>(token_ids_.size()),
                           .token_ids = token_ids_.data(),
                           .next_ids = next_ids_.data(),
                           .positions = positions_.data(),
                           .feature_rows = feature_rows_.data(),
                           .features = features,
                           .rows = rows_,
                           .num_proposals = static_cast<int32_t>(proposal_rows_.size()),
                           .proposal_rows = proposal_rows_.data()},
                          context);
  if (!proposal_rows_.empty()) Propose(plan, staged, context, results);
  context.workspace->ResetTo(mark);
}

void DraftStage::AddRow(size_t index, const StepRow& row, const StagedStep& staged,
                        const RowResult& result) {
  const models::ForwardBatch& batch = staged.batch();
  const int32_t first = batch.rows[0].q_begin[index];
  // Of a row with drafts as many tokens stand as it brought: the known one, and right guesses.
  const auto num_drawn = static_cast<int32_t>(result.tokens.size());
  const int32_t num_stand = row.num_tokens() - row.num_drafts + std::max(0, num_drawn - 1);
  q_begin_.push_back(static_cast<int32_t>(token_ids_.size()));
  kv_len_.push_back(row.begin + num_stand);
  for (int32_t i = 0; i < num_stand; ++i) {
    token_ids_.push_back(batch.token_ids[first + i]);
    positions_.push_back(row.begin + i);
    feature_rows_.push_back(first + i);
    next_ids_.push_back(i + 1 < num_stand ? batch.token_ids[first + i + 1] : 0);
  }
  // Without a token behind it the sequence ends here, and nobody reads the entry.
  const TokenId next = num_drawn > 0 ? result.tokens.back() : row.next_token;
  next_ids_.back() = std::max(next, 0);
}

void DraftStage::GatherPages(const StepPlan& plan, const StagedStep& staged,
                             const SlotTables& tables) {
  reach_ = kv_len_;
  for (const int32_t r : proposal_rows_) {
    reach_[static_cast<size_t>(r)] += parts_.drafter->max_drafts();
  }
  const int32_t longest = reach_.empty() ? 0 : *std::ranges::max_element(reach_);
  const int32_t stride = CeilDiv(longest, limits_.page_tokens);
  for (size_t g = 0; g < page_tables_.size(); ++g) {
    int32_t* out = page_tables_[g].data();
    for (size_t r = 0; r < reach_.size(); ++r) {
      const int32_t count = CeilDiv(reach_[r], limits_.page_tokens);
      const SlotId slot = plan.rows[static_cast<size_t>(staged.own_rows()[r])].slot;
      const auto pages = tables.Pages(parts_.first_group + static_cast<int>(g), slot, count);
      std::ranges::copy(pages, out + static_cast<ptrdiff_t>(r) * stride);
    }
    rows_[g] = {.num_rows = static_cast<int32_t>(reach_.size()),
                .q_begin = q_begin_.data(),
                .kv_len = kv_len_.data(),
                .page_table = out,
                .page_table_stride = stride};
  }
}

void DraftStage::Propose(const StepPlan& plan, const StagedStep& staged,
                         const models::ForwardContext& context, std::span<RowResult> results) {
  const auto vocab = static_cast<int64_t>(parts_.sampler->vocab_size());
  float* logits = staged.batch().logits;
  const size_t count = proposal_rows_.size();
  for (size_t n = 0; n < count; ++n) {
    const auto i = static_cast<size_t>(proposal_plan_rows_[n]);
    if (parts_.sampler->Owns(plan.rows[i].slot)) parts_.tokens[n] = results[i].tokens.back();
  }
  for (int32_t guess_index = 0; guess_index < parts_.drafter->max_drafts(); ++guess_index) {
    // All see the tokens drawn last, and nobody still reads the logits that are written next.
    parts_.group->Barrier(context.stream);
    parts_.drafter->Next(guess_index, parts_.tokens, logits, confidences_.data(), context);
    parts_.group->Barrier(context.stream);
    if (parts_.group->poisoned()) return;
    for (size_t n = 0; n < count; ++n) {
      const auto i = static_cast<size_t>(proposal_plan_rows_[n]);
      const SlotId slot = plan.rows[i].slot;
      if (!parts_.sampler->Owns(slot)) continue;
      // The anchor is the token at position kv_len.
      const int32_t position = kv_len_[static_cast<size_t>(proposal_rows_[n])] + 1 + guess_index;
      const TokenId guess =
          parts_.sampler->DrawGuess(context.stream, *context.workspace, slot, position,
                                    logits + static_cast<int64_t>(n) * vocab);
      parts_.tokens[n] = guess;
      results[i].drafts.push_back(guess);
      if (parts_.drafter->has_confidence()) {
        results[i].draft_confidences.push_back(confidences_[n]);
      }
    }
  }
}

}  // namespace hayate::exec
