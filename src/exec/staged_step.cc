#include "exec/staged_step.h"

#include <algorithm>

#include "base/align.h"
#include "base/check.h"

namespace hayate::exec {

StagedStep::StagedStep(const StepLimits& limits) : limits_(limits) {
  const auto rows = static_cast<size_t>(limits.max_rows);
  const auto tokens = static_cast<size_t>(limits.max_tokens);
  token_ids_.reserve(tokens);
  positions_.reserve(tokens);
  q_begin_.reserve(rows + 1);
  kv_len_.reserve(rows);
  logits_index_.reserve(static_cast<size_t>(limits.max_logits));
  row_logits_.reserve(rows);
  page_tables_.resize(static_cast<size_t>(limits.num_groups));
  for (auto& table : page_tables_) {
    table.resize(rows * static_cast<size_t>(limits.max_slot_pages));
  }
  rows_.resize(static_cast<size_t>(limits.num_groups));
}

void StagedStep::Build(const StepPlan& plan, const SlotTables& tables, const int32_t* last_tokens,
                       float* logits) {
  CHECK_LE(plan.rows.size(), static_cast<size_t>(limits_.max_rows));
  CHECK_LE(plan.num_tokens, limits_.max_tokens);
  token_ids_.clear();
  positions_.clear();
  q_begin_.clear();
  kv_len_.clear();
  logits_index_.clear();
  row_logits_.clear();
  for (const StepRow& row : plan.rows) AddRow(plan, row, last_tokens);
  q_begin_.push_back(static_cast<int32_t>(token_ids_.size()));
  CHECK_EQ(static_cast<int32_t>(token_ids_.size()), plan.num_tokens);
  CHECK_LE(logits_index_.size(), static_cast<size_t>(limits_.max_logits));
  GatherPages(plan, tables);

  batch_.num_tokens = plan.num_tokens;
  batch_.token_ids = token_ids_.data();
  batch_.positions = positions_.data();
  batch_.rows = rows_;
  batch_.num_logits = static_cast<int32_t>(logits_index_.size());
  batch_.logits_index = logits_index_.data();
  batch_.logits = logits;
}

void StagedStep::AddRow(const StepPlan& plan, const StepRow& row, const int32_t* last_tokens) {
  DCHECK(row.first_token != kLateToken || row.num_tokens() == 1) << row.slot;
  const int32_t first = static_cast<int32_t>(token_ids_.size());
  q_begin_.push_back(first);
  kv_len_.push_back(row.end);
  for (int32_t position = row.begin; position < row.end; ++position) {
    positions_.push_back(position);
    token_ids_.push_back(
        row.first_token == kLateToken
            ? last_tokens[row.slot.value]
            : plan.tokens[static_cast<size_t>(row.first_token + position - row.begin)]);
  }

  RowLogits logits;
  if (row.num_scored > 0) {
    logits.score_begin = static_cast<int32_t>(logits_index_.size());
    logits.score_count = row.num_scored;
    logits.score_token = row.first_token + row.score_begin + 1 - row.begin;
    for (int32_t i = 0; i < row.num_scored; ++i) {
      logits_index_.push_back(first + row.score_begin - row.begin + i);
    }
  }
  if (row.samples) {
    logits.sample = static_cast<int32_t>(logits_index_.size());
    for (int32_t token = row.num_tokens() - 1 - row.num_drafts; token < row.num_tokens(); ++token) {
      logits_index_.push_back(first + token);
    }
  }
  row_logits_.push_back(logits);
}

void StagedStep::GatherPages(const StepPlan& plan, const SlotTables& tables) {
  const int32_t longest = kv_len_.empty() ? 0 : *std::max_element(kv_len_.begin(), kv_len_.end());
  const int32_t stride = CeilDiv(longest, limits_.page_tokens);
  for (size_t group = 0; group < page_tables_.size(); ++group) {
    int32_t* out = page_tables_[group].data();
    for (size_t r = 0; r < plan.rows.size(); ++r) {
      const int32_t count = CeilDiv(kv_len_[r], limits_.page_tokens);
      const auto pages = tables.Pages(static_cast<int>(group), plan.rows[r].slot, count);
      std::copy(pages.begin(), pages.end(), out + static_cast<ptrdiff_t>(r) * stride);
    }
    rows_[group] = {.num_rows = static_cast<int32_t>(plan.rows.size()),
                    .q_begin = q_begin_.data(),
                    .kv_len = kv_len_.data(),
                    .page_table = out,
                    .page_table_stride = stride};
  }
}

}  // namespace hayate::exec
