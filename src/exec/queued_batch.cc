// Of a queued worker: what of a plan is its dp rank's, how many rows every dp rank pads to, and the
// arrays of the batch.

#include <algorithm>
#include <array>
#include <numeric>

#include "comm/peer_group.h"
#include "exec/queued_worker.h"

namespace hayate::exec {
namespace {

// Rows of logits.
int32_t NumLogits(const StepRow& row) {
  return row.num_scored + (row.samples ? row.num_drafts + 1 : 0);
}

}  // namespace

const StepPlan& QueuedWorker::OwnPart(const StepPlan& plan) {
  const comm::RankLayout& layout = options_.place.layout;
  if (layout.dp_size() == 1) {
    plan_rows_.resize(plan.rows.size());
    std::iota(plan_rows_.begin(), plan_rows_.end(), 0);
    return plan;
  }
  const auto own = [&](SlotId slot) { return layout.dp_rank_of_slot(slot.value) == dp_rank_; };
  own_plan_.Clear();
  plan_rows_.clear();
  own_plan_.step = plan.step;
  own_plan_.tokens = plan.tokens;
  own_plan_.num_masks = plan.num_masks;
  own_plan_.masks = plan.masks;
  for (const SlotStart& start : plan.starts) {
    if (own(start.slot)) own_plan_.starts.push_back(start);
  }
  for (const PageUpdate& update : plan.page_updates) {
    if (own(update.slot)) own_plan_.page_updates.push_back(update);
  }
  for (const PageCopy& copy : plan.copies) {
    if (copy.dp_rank == dp_rank_) own_plan_.copies.push_back(copy);
  }
  for (size_t r = 0; r < plan.rows.size(); ++r) {
    if (!own(plan.rows[r].slot)) continue;
    own_plan_.rows.push_back(plan.rows[r]);
    own_plan_.num_tokens += plan.rows[r].num_tokens();
    plan_rows_.push_back(static_cast<int32_t>(r));
  }
  return own_plan_;
}

QueuedWorker::Shape QueuedWorker::ShapeOf(const StepPlan& plan, const StepPlan& own) const {
  Shape shape{.num_tokens = own.num_tokens, .num_rows = static_cast<int32_t>(own.rows.size())};
  for (const StepRow& row : own.rows) {
    shape.num_logits += NumLogits(row);
    shape.replays |= row.settled > 0;
  }
  const int32_t most = MostDecodeRows(plan);
  if (most == 0 || graph_rows_.empty() || most > graph_rows_.back()) return shape;
  const int32_t padded = *std::ranges::lower_bound(graph_rows_, most);
  const bool long_row = padded == 1 && std::ranges::any_of(plan.rows, [](const StepRow& row) {
                          return row.end > ops::kShortRowKeys;
                        });
  return {padded, padded, padded, true, false, long_row};
}

int32_t QueuedWorker::MostDecodeRows(const StepPlan& plan) const {
  if (sampler_.WantsHidden(plan)) return 0;  // graphs write none
  const comm::RankLayout& layout = options_.place.layout;
  std::array<int32_t, comm::kMaxPeerRanks> counts = {};  // by dp rank
  for (const StepRow& row : plan.rows) {
    const bool decode = row.num_tokens() == 1 && row.samples && row.num_scored == 0;
    if (!decode || row.settled > 0 || (splits_by_position_ && IsPrompt(row))) return 0;
    ++counts[static_cast<size_t>(layout.dp_rank_of_slot(row.slot.value))];
  }
  return std::ranges::max(counts);
}

void QueuedWorker::CountRows(const StepPlan& plan, const Shape& shape) {
  if (num_tokens_.empty()) return;
  if (shape.captured) return CountPadded(shape.num_rows);
  std::ranges::fill(num_tokens_, 0);
  std::ranges::fill(num_logits_, 0);
  for (const StepRow& row : plan.rows) {
    const int dp_rank = options_.place.layout.dp_rank_of_slot(row.slot.value);
    num_tokens_[static_cast<size_t>(dp_rank)] += row.num_tokens();
    num_logits_[static_cast<size_t>(dp_rank)] += NumLogits(row);
  }
  SplitCounts();
}

void QueuedWorker::CountPadded(int32_t rows) {
  if (num_tokens_.empty()) return;
  std::ranges::fill(num_tokens_, rows);
  std::ranges::fill(num_logits_, rows);
  SplitCounts();
}

void QueuedWorker::SplitCounts() {
  options_.place.layout.SplitRows(num_tokens_, tokens_per_rank_);
  options_.place.layout.SplitRows(num_logits_, logits_per_rank_);
}

bool QueuedWorker::IsPrompt(const StepRow& row) const {
  return row.begin < prompt_lengths_[static_cast<size_t>(row.slot.value)];
}

void QueuedWorker::FillArrays(const StepPlan& plan, BatchArrays& arrays,
                              Staged<int32_t>& late_slots) {
  size_t token = 0, logits = 0;
  is_prompt_.assign(arrays.kv_len.host.size(), 0);
  for (size_t r = 0; r < plan.rows.size(); ++r) {
    const StepRow& row = plan.rows[r];
    const bool late = row.first_token == kLateToken;
    DCHECK(!late || row.num_tokens() == 1) << row.slot;
    const auto first = static_cast<int32_t>(token);
    arrays.q_begin.host[r] = first;
    arrays.kv_len.host[r] = row.end;
    arrays.table_row.host[r] = row.slot.value;
    is_prompt_[r] = IsPrompt(row);
    if (!arrays.settled.host.empty()) {
      arrays.window_begin.host[r] = row.window_begin;
      arrays.settled.host[r] = row.settled;
    }
    for (int32_t position = row.begin; position < row.end; ++position, ++token) {
      arrays.positions.host[token] = position;
      late_slots.host[token] = late ? row.slot.value : -1;
      arrays.token_ids.host[token] =
          late ? 0 : plan.tokens[static_cast<size_t>(row.first_token + position - row.begin)];
    }
    for (int32_t i = 0; i < row.num_scored; ++i) {
      arrays.logits_index.host[logits++] = first + row.score_begin - row.begin + i;
    }
    for (int32_t back = row.samples ? row.num_drafts + 1 : 0; back > 0; --back) {
      arrays.logits_index.host[logits++] = static_cast<int32_t>(token) - back;
    }
  }
  CHECK_EQ(static_cast<int32_t>(token), plan.num_tokens);
}

// Rows, tokens and logits beyond the plan's: token 0 at position 0 of the scratch page. Padded rows
// have a token and logits each, so what is not padding is counted alike in both.
void QueuedWorker::FillPadding(const StepPlan& plan, const Shape& shape,
                               BatchArrays& arrays) const {
  const int32_t added = shape.num_rows - static_cast<int32_t>(plan.rows.size());
  for (int32_t i = 0; i < added; ++i) {
    const auto r = plan.rows.size() + static_cast<size_t>(i);
    const int32_t token = plan.num_tokens + i;
    arrays.token_ids.host[static_cast<size_t>(token)] = 0;
    arrays.positions.host[static_cast<size_t>(token)] = 0;
    arrays.q_begin.host[r] = token;
    arrays.kv_len.host[r] = 1;
    arrays.table_row.host[r] = options_.limits.max_rows;
    arrays.logits_index.host[arrays.logits_index.host.size() - static_cast<size_t>(added - i)] =
        token;
  }
  arrays.q_begin.host[static_cast<size_t>(shape.num_rows)] = shape.num_tokens;
  for (int32_t& count : arrays.num_unpadded.host) count = plan.num_tokens;
}

}  // namespace hayate::exec
