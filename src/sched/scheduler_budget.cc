// Scheduler: how many prompt tokens a step may hold.

#include <algorithm>

#include "base/align.h"
#include "sched/scheduler.h"

namespace hayate::sched {
namespace {

// A step with prompts takes so many times what it would without. Twice is what 99 of 100 tokens
// bear; the rest is for what nobody foretells: at 1.95 they took 2.03 to 2.05 times.
constexpr double kMostTimes = 1.88;
// Beside answers so many steps may go by until the prompts that could be computed are.
constexpr int32_t kBacklogSteps = 96;
// A backlog takes a step so many times mixed_chunk_size, at most.
constexpr int32_t kBacklogChunks = 4;
// How many waiting requests one plan counts.
constexpr size_t kMaxCounted = 128;
// However long prompt tokens take, a step holds this part of mixed_chunk_size; and this part of
// what was asked for, however little of it whole tiles leave.
constexpr int32_t kLeastPart = 4;
// Where time is short a step may end at such a part of a tile, and what does not fill a whole one
// by less than the smaller part counts as filling it.
constexpr int32_t kTileParts = 4, kSmallTileParts = 8;

// The row's next token is its last known one, or one in flight.
bool Decodes(const Sequence& sequence) {
  return sequence.wants_row() && sequence.length() - sequence.planned == 1;
}

}  // namespace

int32_t Scheduler::PrefillBudget() {
  const int32_t chunk = options_.ShareOf(options_.chunked_prefill_size);
  const int32_t mixed_chunk = options_.mixed_chunk_size;
  if (mixed_chunk == 0 || mixed_chunk >= options_.chunked_prefill_size) return chunk;
  const StepLoad load = NextLoad();
  if (load.decodes == 0) return chunk;
  const int32_t bearable = step_times_.PromptTokensWithin(load, kMostTimes).value_or(mixed_chunk);
  const int64_t usual = std::clamp(bearable, CeilDiv(mixed_chunk, kLeastPart), mixed_chunk);
  const int64_t backlog =
      std::min<int64_t>(PromptBacklog() / kBacklogSteps, int64_t{kBacklogChunks} * mixed_chunk);
  const int64_t wanted = std::max(usual, backlog);
  const int32_t mixed = options_.ShareOf(static_cast<int32_t>(wanted));
  return std::min(chunk, WholeTiles(load.decodes, mixed, wanted < mixed_chunk));
}

int32_t Scheduler::WholeTiles(int32_t decodes, int32_t prompt_tokens, bool time_is_short) const {
  const int32_t tile = options_.mixed_step_multiple, tokens = decodes + prompt_tokens;
  int32_t end = AlignDown(tokens + (tile - 1) / 2, tile);
  if (time_is_short) {
    end = std::max(AlignDown(tokens + tile / kSmallTileParts, tile),
                   AlignDown(tokens, std::max(1, tile / kTileParts)));
  }
  const int32_t whole = end - decodes;
  return whole >= CeilDiv(prompt_tokens, kLeastPart) ? whole : prompt_tokens;
}

StepLoad Scheduler::NextLoad() const {
  StepLoad load;
  for (const Sequence* sequence : running_) {
    if (Decodes(*sequence)) {
      ++load.decodes;
      load.keys += sequence->length();
    } else if (sequence->wants_row()) {
      load.position = std::max(load.position, sequence->planned);
    }
  }
  return load;
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
  StepLoad load;
  for (const StepRow& row : plan.rows) {
    if (row.num_tokens() == row.num_drafts + 1) {
      ++load.decodes;
      load.keys += row.end;
    } else {
      load.prompt_tokens += row.num_tokens();
      load.position = std::max(load.position, row.begin);
    }
  }
  step_times_.Add(load, static_cast<double>(device_ns));
}

}  // namespace hayate::sched
