// Scheduler: the rows of the running sequences, and retraction when memory runs out.

#include <algorithm>

#include "sched/scheduler.h"

namespace hayate::sched {

bool Scheduler::Plan(StepPlan& plan) {
  plan.Clear();
  plan.step = next_step_;
  const int32_t prefill_budget = PrefillBudget();
  for (DpRank& dp_rank : dp_ranks_) dp_rank.prefill_budget = prefill_budget;
  score_budget_ = options_.max_scored_tokens;
  draft_budget_ = options_.max_step_drafts;
  if (options_.policy == Policy::kPriority) PreemptForPriority();
  const uint64_t retractions_before = num_retractions_;
  PlanRunning(plan);
  // Right after a retraction whoever waits would only take the memory that the rest needs.
  if (num_retractions_ == retractions_before) AdmitWaiting(plan);
  if (plan.empty()) return false;
  ++next_step_;
  reserve_.OnStep();
  return true;
}

void Scheduler::PlanRunning(StepPlan& plan) {
  // Retraction takes what comes after `i`, or the sequence itself.
  for (size_t i = 0; i < running_.size();) {
    Sequence& sequence = *running_[i];
    RowOutcome outcome = PlanRow(sequence, plan);
    while (outcome == RowOutcome::kNoMemory && FreeMemoryFor(i)) {
      outcome = PlanRow(sequence, plan);
    }
    if (sequence.running()) ++i;
  }
}

Scheduler::RowOutcome Scheduler::PlanRow(Sequence& sequence, StepPlan& plan) {
  if (!sequence.wants_row()) return RowOutcome::kNothingToDo;
  const int32_t begin = sequence.planned;
  int32_t end = sequence.length();
  const bool decodes = end - begin == 1;
  DpRank& dp_rank = dp_ranks_[DpRankOf(sequence.slot)];
  if (!decodes) end = std::min(end, begin + dp_rank.prefill_budget);
  if (sequence.wants_scores()) {
    end = std::min(end, std::max(begin, sequence.score_next) + score_budget_);
  }
  if (end <= begin) return RowOutcome::kNothingToDo;
  // Speculation takes memory that is there; nobody is retracted for it.
  RowExtras extras = ExtrasFor(sequence, end);
  const int32_t reach = end + extras.num_drafts + (extras.proposes ? options_.draft_lookahead : 0);
  if (!sequence.cache->Reserve(begin, reach, plan)) {
    extras = {};
    if (reach == end || !sequence.cache->Reserve(begin, end, plan)) return RowOutcome::kNoMemory;
  }
  EmitRow(sequence, end, extras, plan);
  if (!decodes) dp_rank.prefill_budget -= end - begin;
  return RowOutcome::kPlanned;
}

Scheduler::RowExtras Scheduler::ExtrasFor(const Sequence& sequence, int32_t end) const {
  RowExtras extras;
  if (options_.max_drafts == 0 || end != sequence.length()) return extras;
  // The last token of an answer has none behind it that a draft could be.
  const int32_t useful = sequence.remaining_output() - 1;
  if (sequence.decodes_known() && !sequence.wants_scores()) {
    extras.num_drafts = std::max(0, std::min({static_cast<int32_t>(sequence.drafts.size()),
                                              options_.max_drafts, draft_budget_, useful}));
  }
  extras.proposes = options_.draft_lookahead > 0 && useful > 0 &&
                    end + extras.num_drafts + options_.draft_lookahead <= options_.max_context;
  return extras;
}

void Scheduler::EmitRow(Sequence& sequence, int32_t end, const RowExtras& extras, StepPlan& plan) {
  const int32_t begin = sequence.planned;
  if (!sequence.slot_started) {
    sequence.slot_started = true;
    plan.starts.push_back(
        {.slot = sequence.slot,
         .sampling = sequence.request.sampling,
         .logprobs = sequence.request.logprobs,
         .prompt_length = sequence.prompt_length(),
         .outputs = {sequence.tokens.begin() + sequence.prompt_length(), sequence.tokens.end()}});
  }
  StepRow row{.slot = sequence.slot,
              .begin = begin,
              .end = end + extras.num_drafts,
              .first_token = kLateToken,
              .samples = end == sequence.length() && sequence.wants_sample(),
              .num_drafts = extras.num_drafts,
              .proposes = extras.proposes};
  if (begin < sequence.known()) {
    row.first_token = static_cast<int32_t>(plan.tokens.size());
    plan.tokens.insert(plan.tokens.end(), sequence.tokens.begin() + begin,
                       sequence.tokens.begin() + end);
  }
  if (end < sequence.known()) row.next_token = sequence.tokens[static_cast<size_t>(end)];
  if (begin < sequence.cache->num_cached_tokens()) {
    row.window_begin = sequence.cache->first_position();
    row.settled = sequence.cache->num_cached_tokens();
  }
  if (extras.num_drafts > 0) {
    plan.tokens.insert(plan.tokens.end(), sequence.drafts.begin(),
                       sequence.drafts.begin() + extras.num_drafts);
    draft_budget_ -= extras.num_drafts;
    if (sequence.forced_accepts >= 0) {
      row.forced_accepts = std::min(sequence.forced_accepts, extras.num_drafts);
    }
  }
  if (sequence.wants_scores() && sequence.score_next < end) {
    row.score_begin = sequence.score_next;
    row.num_scored = std::min(end, sequence.prompt_length() - 1) - row.score_begin;
    if (row.score_begin + row.num_scored == end) {
      plan.tokens.push_back(sequence.tokens[static_cast<size_t>(end)]);
    }
    sequence.score_next += row.num_scored;
    score_budget_ -= row.num_scored;
  }
  if (row.samples && sequence.request.grammar != nullptr) {
    row.mask = plan.num_masks;
    plan.num_masks += row.num_drafts + 1;
  }
  plan.rows.push_back(row);
  plan.num_tokens += row.num_tokens();
  sequence.planned = row.end;
  if (row.samples) ++sequence.late;
}

bool Scheduler::AnyDeferred(size_t dp_rank) const {
  const kv::KvCache& cache = CacheOf(dp_rank);
  for (int group = 0; group < cache.num_groups(); ++group) {
    if (cache.counts(group).deferred > 0) return true;
  }
  return false;
}

bool Scheduler::FreeMemoryFor(size_t index) {
  // Pages on their way back: this sequence sits the step out rather than push another one off.
  const size_t dp_rank = DpRankOf(running_[index]->slot);
  if (AnyDeferred(dp_rank)) return false;
  // Only those of the same dp rank hold pages that help.
  for (size_t last = running_.size() - 1; last > index; --last) {
    if (DpRankOf(running_[last]->slot) != dp_rank) continue;
    Retract(*running_[last]);
    return true;
  }
  // The last in order steps back itself; the only one keeps its place and waits for pages.
  if (dp_ranks_[dp_rank].num_running > 1) Retract(*running_[index]);
  return false;
}

void Scheduler::Submitted(const StepPlan& plan) {
  caches_.StepSubmitted(plan.step);
  // Steps run in order, so what this one computes can be read by the next. Decoded tokens are
  // published at commit, when they are known.
  for (const StepRow& row : plan.rows) {
    if (row.first_token == kLateToken) continue;
    Sequence& sequence = *InSlot(row.slot);
    sequence.cache->Publish(sequence.tokens, std::min(sequence.planned, sequence.known()));
  }
}

}  // namespace hayate::sched
