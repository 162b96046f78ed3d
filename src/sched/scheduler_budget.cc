// Scheduler: how many prompt tokens a step may hold.

#include <algorithm>

#include "base/align.h"
#include "sched/scheduler.h"

namespace hayate::sched {
namespace {

// Beside answers so many steps may go by until the prompts that could be computed are.
constexpr int32_t kBacklogSteps = 48;
// How many waiting requests one plan counts.
constexpr size_t kMaxCounted = 128;
// However long prompt tokens take, a step holds this part of mixed_chunk_size.
constexpr int32_t kLeastPart = 4;
// What does not fill a tile by less than this part of it counts as filling it.
constexpr int32_t kTileSlack = 4;

}  // namespace

int32_t Scheduler::PrefillBudget() {
  const int32_t chunk = options_.ShareOf(options_.chunked_prefill_size);
  const int32_t mixed_chunk = options_.mixed_chunk_size;
  if (mixed_chunk == 0) return chunk;
  const auto decodes =
      static_cast<int32_t>(std::ranges::count_if(running_, [](const Sequence* sequence) {
        return sequence->wants_row() && sequence->length() - sequence->planned == 1;
      }));
  if (decodes == 0) return chunk;
  const int32_t most = mixed_chunk + decodes, multiple = options_.mixed_step_multiple;
  int32_t usual = most;
  if (mixed_chunk < options_.chunked_prefill_size) {
    const int32_t least =
        std::min(most, std::max(multiple * options_.num_dp_ranks, mixed_chunk / kLeastPart));
    usual = std::clamp(step_times_.DoublingTokens(decodes).value_or(most), least, most);
  }
  const int64_t wanted =
      std::clamp<int64_t>(PromptBacklog() / kBacklogSteps, usual, std::max(most, 2 * mixed_chunk));
  const int32_t mixed = std::min(chunk, options_.ShareOf(static_cast<int32_t>(wanted)));
  // To the nearest tile, but for what time allows: that is rounded down.
  const int32_t up = wanted < most ? multiple / kTileSlack : (multiple - 1) / 2;
  const int32_t whole = AlignDown(decodes + mixed + up, multiple) - decodes;
  return whole > 0 ? std::min(chunk, whole) : mixed;
}

int64_t Scheduler::PromptBacklog() {
  int64_t tokens = 0;
  for (const Sequence* sequence : running_) {
    const int32_t left = sequence->length() - sequence->planned;
    if (sequence->wants_row() && left > 1) tokens += left;
  }
  size_t free_slots = 0;
  for (const DpRank& dp_rank : dp_ranks_) free_slots += dp_rank.free_slots.size();
  waiting_.Head(std::min(free_slots, kMaxCounted), candidates_);
  for (const Sequence* sequence : candidates_) tokens += sequence->length();
  return tokens;
}

void Scheduler::Took(const StepPlan& plan, int64_t device_ns) {
  int32_t decodes = 0, prompt_tokens = 0;
  for (const StepRow& row : plan.rows) {
    const bool decode = row.num_tokens() == row.num_drafts + 1;
    (decode ? decodes : prompt_tokens) += decode ? 1 : row.num_tokens();
  }
  step_times_.Add(decodes, prompt_tokens, static_cast<double>(device_ns));
}

}  // namespace hayate::sched
