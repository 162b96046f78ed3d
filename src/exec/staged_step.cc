#include "exec/staged_step.h"

#include <algorithm>

#include "base/align.h"
#include "base/check.h"

namespace hayate::exec {

StagedStep::StagedStep(const StepLimits& limits, const comm::RankLayout& layout, int dp_rank)
    : limits_(limits),
      layout_(layout),
      dp_rank_(dp_rank),
      num_tokens_(static_cast<size_t>(layout.dp_size())),
      num_logits_(num_tokens_.size()),
      tokens_per_rank_(static_cast<size_t>(layout.num_ranks())),
      logits_per_rank_(tokens_per_rank_.size()) {
  const auto rows = static_cast<size_t>(limits.max_rows);
  const auto tokens = static_cast<size_t>(limits.max_tokens);
  own_rows_.reserve(rows);
  own_slots_.reserve(rows);
  token_ids_.reserve(tokens);
  positions_.reserve(tokens);
  q_begin_.reserve(rows + 1);
  kv_len_.reserve(rows);
  logits_index_.reserve(static_cast<size_t>(limits.max_logits));
  window_begin_.reserve(rows);
  settled_.reserve(rows);
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
  token_ids_.clear();
  positions_.clear();
  q_begin_.clear();
  kv_len_.clear();
  logits_index_.clear();
  window_begin_.clear();
  settled_.clear();
  row_logits_.clear();
  own_rows_.clear();
  own_slots_.clear();
  std::ranges::fill(num_tokens_, 0);
  std::ranges::fill(num_logits_, 0);
  for (size_t i = 0; i < plan.rows.size(); ++i) {
    const StepRow& row = plan.rows[i];
    CountRow(row);
    if (layout_.dp_rank_of_slot(row.slot.value) == dp_rank_) {
      own_rows_.push_back(static_cast<int32_t>(i));
      AddRow(plan, row, last_tokens);
    } else {
      row_logits_.emplace_back();
    }
  }
  layout_.SplitRows(num_tokens_, tokens_per_rank_);
  layout_.SplitRows(num_logits_, logits_per_rank_);
  q_begin_.push_back(static_cast<int32_t>(token_ids_.size()));
  const int32_t num_tokens = num_tokens_[static_cast<size_t>(dp_rank_)];
  CHECK_EQ(static_cast<int32_t>(token_ids_.size()), num_tokens);
  CHECK_EQ(static_cast<int32_t>(logits_index_.size()), num_logits_[static_cast<size_t>(dp_rank_)]);
  CHECK_LE(num_tokens, limits_.max_tokens);
  CHECK_LE(logits_index_.size(), static_cast<size_t>(limits_.max_logits));
  GatherPages(tables);

  batch_.num_tokens = num_tokens;
  batch_.token_ids = token_ids_.data();
  batch_.positions = positions_.data();
  batch_.rows = rows_;
  batch_.num_logits = static_cast<int32_t>(logits_index_.size());
  batch_.logits_index = logits_index_.data();
  batch_.logits = logits;
  batch_.tokens_per_rank = tokens_per_rank_;
  batch_.logits_per_rank = logits_per_rank_;
  const bool replays = std::ranges::any_of(settled_, [](int32_t end) { return end > 0; });
  batch_.window_begin = replays ? window_begin_.data() : nullptr;
  batch_.settled = replays ? settled_.data() : nullptr;
}

void StagedStep::CountRow(const StepRow& row) {
  const auto dp_rank = static_cast<size_t>(layout_.dp_rank_of_slot(row.slot.value));
  num_tokens_[dp_rank] += row.num_tokens();
  num_logits_[dp_rank] += row.num_scored + (row.samples ? row.num_drafts + 1 : 0);
}

void StagedStep::AddRow(const StepPlan& plan, const StepRow& row, const int32_t* last_tokens) {
  DCHECK(row.first_token != kLateToken || row.num_tokens() == 1) << row.slot;
  const int32_t first = static_cast<int32_t>(token_ids_.size());
  own_slots_.push_back(row.slot);
  q_begin_.push_back(first);
  kv_len_.push_back(row.end);
  window_begin_.push_back(row.window_begin);
  settled_.push_back(row.settled);
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

void StagedStep::GatherPages(const SlotTables& tables) {
  const int32_t longest = kv_len_.empty() ? 0 : *std::max_element(kv_len_.begin(), kv_len_.end());
  const int32_t stride = CeilDiv(longest, limits_.page_tokens);
  for (size_t group = 0; group < page_tables_.size(); ++group) {
    int32_t* out = page_tables_[group].data();
    for (size_t r = 0; r < own_slots_.size(); ++r) {
      const int32_t count = CeilDiv(kv_len_[r], limits_.page_tokens);
      const auto pages = tables.Pages(static_cast<int>(group), own_slots_[r], count);
      std::copy(pages.begin(), pages.end(), out + static_cast<ptrdiff_t>(r) * stride);
    }
    rows_[group] = {.num_rows = static_cast<int32_t>(own_slots_.size()),
                    .q_begin = q_begin_.data(),
                    .kv_len = kv_len_.data(),
                    .page_table = out,
                    .page_table_stride = stride};
  }
}

}  // namespace hayate::exec
