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
  committed_.Clear();
  if (staged.own_rows().empty()) return;
  const models::ForwardBatch& batch = staged.batch();
  for (size_t r = 0; r < staged.own_rows().size(); ++r) {
    const int32_t plan_row = staged.own_rows()[r], first = batch.rows[0].q_begin[r];
    const StepRow& row = plan.rows[static_cast<size_t>(plan_row)];
    const std::span tokens(batch.token_ids + first, static_cast<size_t>(row.num_tokens()));
    committed_.Add(plan_row, row, tokens, first, results[static_cast<size_t>(plan_row)]);
  }
  GatherPages(plan, tables);
  // The drafter keeps there what its guesses need.
  const size_t mark = context.workspace->mark();
  parts_.drafter->Advance({.num_tokens = committed_.num_tokens(),
                           .token_ids = committed_.token_ids.data(),
                           .next_ids = committed_.next_ids.data(),
                           .positions = committed_.positions.data(),
                           .feature_rows = committed_.feature_rows.data(),
                           .features = features,
                           .rows = rows_,
                           .num_proposals = static_cast<int32_t>(committed_.num_proposals()),
                           .proposal_rows = committed_.proposal_rows.data()},
                          context);
  if (committed_.num_proposals() > 0) Propose(plan, staged, context, results);
  context.workspace->ResetTo(mark);
}

void DraftStage::GatherPages(const StepPlan& plan, const SlotTables& tables) {
  reach_ = committed_.kv_len;
  for (const int32_t r : committed_.proposal_rows) {
    reach_[static_cast<size_t>(r)] += parts_.drafter->max_drafts();
  }
  const int32_t longest = reach_.empty() ? 0 : *std::ranges::max_element(reach_);
  const int32_t stride = CeilDiv(longest, limits_.page_tokens);
  for (size_t g = 0; g < page_tables_.size(); ++g) {
    int32_t* out = page_tables_[g].data();
    for (size_t r = 0; r < reach_.size(); ++r) {
      const int32_t count = CeilDiv(reach_[r], limits_.page_tokens);
      const SlotId slot = plan.rows[static_cast<size_t>(committed_.plan_rows[r])].slot;
      const auto pages = tables.Pages(parts_.first_group + static_cast<int>(g), slot, count);
      std::ranges::copy(pages, out + static_cast<ptrdiff_t>(r) * stride);
    }
    rows_[g] = {.num_rows = static_cast<int32_t>(reach_.size()),
                .q_begin = committed_.q_begin.data(),
                .kv_len = committed_.kv_len.data(),
                .page_table = out,
                .page_table_stride = stride};
  }
}

void DraftStage::Propose(const StepPlan& plan, const StagedStep& staged,
                         const models::ForwardContext& context, std::span<RowResult> results) {
  const auto vocab = static_cast<int64_t>(parts_.sampler->vocab_size());
  float* logits = staged.batch().logits;
  const size_t count = committed_.num_proposals();
  for (size_t n = 0; n < count; ++n) {
    const auto i = static_cast<size_t>(committed_.proposal_plan_rows[n]);
    if (parts_.sampler->Owns(plan.rows[i].slot)) parts_.tokens[n] = committed_.anchors[n];
  }
  for (int32_t guess_index = 0; guess_index < parts_.drafter->max_drafts(); ++guess_index) {
    // All see the tokens drawn last, and nobody still reads the logits that are written next.
    parts_.group->Barrier(context.stream);
    parts_.drafter->Next(guess_index, parts_.tokens, logits, confidences_.data(), context);
    parts_.group->Barrier(context.stream);
    if (parts_.group->poisoned()) return;
    for (size_t n = 0; n < count; ++n) {
      const auto i = static_cast<size_t>(committed_.proposal_plan_rows[n]);
      const SlotId slot = plan.rows[i].slot;
      if (!parts_.sampler->Owns(slot)) continue;
      // The anchor is the token at position kv_len.
      const auto r = static_cast<size_t>(committed_.proposal_rows[n]);
      const int32_t position = committed_.kv_len[r] + 1 + guess_index;
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
