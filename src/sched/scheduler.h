#pragma once
// Decides what each step computes: continuous batching with chunked prefill mixed into every step.
//
// A plan serves the running sequences in order (by priority under that policy, then by arrival):
// one token where a sequence decodes, a chunk where it has more to compute. What is left of the
// step's prefill budget goes to waiting requests, as far as slots and memory allow. When memory
// runs out the last in order is retracted: it gives up slot and pages, keeps its tokens, and waits
// in its old place. The first in order is never retracted for another, so some request always
// progresses.
//
// Under DP attention a slot belongs to a dp rank (slot mod num_dp_ranks), and with it the
// sequence's pages: slots, memory and the prefill budget are counted by dp rank. A waiting request
// goes to the dp rank with the longest cached prefix, or to the emptiest where that one runs far
// ahead.
//
// Works on kv's metadata alone; knows nothing of devices. Owner: engine thread. Never blocks.

#include <algorithm>
#include <cstdint>
#include <memory>
#include <set>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/align.h"
#include "base/clock.h"
#include "base/status.h"
#include "core/request.h"
#include "core/step_plan.h"
#include "kv/kv_caches.h"
#include "sched/output_reserve.h"
#include "sched/sequence.h"
#include "sched/step_times.h"
#include "sched/waiting_queue.h"

namespace hayate::sched {

struct SchedulerOptions {
  Policy policy = Policy::kFcfs;
  int32_t max_running = 64;            // slots
  int32_t num_dp_ranks = 1;            // that share slots and prefill tokens evenly
  int32_t chunked_prefill_size = 512;  // prefill tokens of one step, over all rows
  // The same of a step that decodes too. Fewer where, by the times of the steps before, that would
  // take nearly twice as long as the step without prompts (a quarter of it at least).
  // Up to four times as many where more prompts have come than such steps soon compute. At most
  // chunked_prefill_size in all; 0, or as many: nothing but that bounds them.
  int32_t mixed_chunk_size = 0;
  // The tokens of a mixed step are the nearest multiple of this where its prompts have enough, or
  // of a quarter of it where time is short: matrix products compute whole tiles of tokens.
  int32_t mixed_step_multiple = 1;
  // Prompt positions that one plan scores: each costs a row of logits on the device.
  int32_t max_scored_tokens = 16;
  int32_t max_context = 0;   // positions of the longest sequence
  bool prefix_reuse = true;  // the cache shares prefixes: worth waiting for one under way
  // Under kPriority: how much higher a waiting request's priority must be to push out a running
  // one.
  int32_t preemption_threshold = 10;

  int32_t max_drafts = 0;       // that one row verifies; 0: no speculation
  int32_t max_step_drafts = 0;  // that one plan verifies
  // Positions that the drafter fills behind a row's draws; 0: it keeps nothing in the cache.
  int32_t draft_lookahead = 0;

  // The most tokens and logits rows that a plan can hold of one dp rank.
  int32_t max_step_tokens() const {
    return ShareOf(chunked_prefill_size) + CeilDiv(max_running, num_dp_ranks) + max_step_drafts;
  }
  int32_t max_step_logits() const { return max_running + max_scored_tokens + max_step_drafts; }
  // Of a number of tokens, a dp rank's.
  int32_t ShareOf(int32_t tokens) const { return std::max(1, tokens / num_dp_ranks); }
};

struct SchedulerStats {
  int32_t num_running = 0;
  int32_t num_waiting = 0;
  int32_t num_free_slots = 0;
  uint64_t num_retractions = 0;
  float new_token_ratio = 0.0f;
};

enum class FinishMode : uint8_t {
  kPublish,  // its complete pages go to the prefix cache
  kDrop,     // aborted: what was not yet published is dropped
};

class Scheduler {
 public:
  // The caches, one a dp rank, and the clock outlive the scheduler.
  Scheduler(const SchedulerOptions& options, kv::KvCaches& caches, const Clock& clock);

  // Whether the request can ever run here.
  Status Validate(const Request& request) const;

  // Takes a valid request into the waiting queue. The id is new.
  Sequence& Add(Request request);
  // Null when it has finished.
  Sequence* Find(RequestId id);
  // In serving order.
  std::span<Sequence* const> running() const { return running_; }
  Sequence* InSlot(SlotId slot) { return slots_[static_cast<size_t>(slot.value)]; }
  // One whose deadline lies before now, or null; and the earliest deadline of all.
  Sequence* NextExpired(int64_t now_ns);
  int64_t next_deadline_ns() const;
  // Any sequence at all, for aborting everything; null when there is none.
  Sequence* Any();

  // Writes the next step into `plan` (cleared first). False when there is nothing to compute at the
  // moment. A plan that was written must be submitted.
  bool Plan(StepPlan& plan);
  // The plan was submitted: what it computes may be shared from the next plan on.
  void Submitted(const StepPlan& plan);
  // The step's results are in; called before they are committed.
  void Retired(uint64_t step) { caches_.StepRetired(step); }
  // What a step that succeeded took; later plans hold as many prompt tokens as such times allow.
  void Took(const StepPlan& plan, int64_t device_ns);

  // Commit: a row's drafts were verified and it brings num_tokens tokens, appended next; the
  // positions behind the drafts that stand are as if never computed.
  void Verified(Sequence& sequence, const StepRow& row, int32_t num_tokens);
  // Commit: a sampled token becomes known.
  void Append(Sequence& sequence, TokenId token);
  // Everything that runs goes back to the queue, to be computed again. With no step in flight.
  void RetractAll();
  // Which waiting requests may get a slot: all, or only those that had one before.
  enum class Intake : uint8_t { kOpen, kBegunOnly };
  void SetIntake(Intake intake) { intake_ = intake; }
  // Whether any request has had a slot and is not finished.
  bool AnyBegun() const;
  // The sequence leaves in whatever state it is, and is destroyed.
  void Finish(Sequence& sequence, FinishMode mode);

  bool idle() const { return sequences_.empty(); }
  SchedulerStats stats() const;

 private:
  // What a dp rank has left.
  struct DpRank {
    std::vector<SlotId> free_slots;
    int32_t num_running = 0;
    int32_t prefill_budget = 0;  // tokens left in the plan being written

    bool takes_more() const { return !free_slots.empty() && prefill_budget > 0; }
  };
  size_t DpRankOf(SlotId slot) const {
    return static_cast<size_t>(slot.value % options_.num_dp_ranks);
  }
  kv::KvCache& CacheOf(size_t dp_rank) const { return caches_.of(static_cast<int>(dp_rank)); }
  bool AnyTakesMore() const;
  // Prompt tokens that the plan may hold of a dp rank, given what runs and waits.
  int32_t PrefillBudget();
  // About so many prompt tokens that with `decodes` more they fill tiles: to the nearest, or, where
  // time is short, to a part of one below; as many as they are where that is hardly any.
  int32_t WholeTiles(int32_t decodes, int32_t prompt_tokens, bool time_is_short) const;
  // What runs, as the next step: its rows that decode, and where its prompts go on.
  StepLoad NextLoad() const;
  // Of the prompts that have a slot or could have one.
  int64_t PromptBacklog();
  enum class RowOutcome { kPlanned, kNothingToDo, kNoMemory };

  // What a row holds beyond its known or late tokens.
  struct RowExtras {
    int32_t num_drafts = 0;
    bool proposes = false;
  };

  RowOutcome PlanRow(Sequence& sequence, StepPlan& plan);
  RowExtras ExtrasFor(const Sequence& sequence, int32_t end) const;
  void EmitRow(Sequence& sequence, int32_t end, const RowExtras& extras, StepPlan& plan);
  void PlanRunning(StepPlan& plan);
  // Makes room for running_[index]; true when its row can be tried again.
  bool FreeMemoryFor(size_t index);
  bool AnyDeferred(size_t dp_rank) const;

  void AdmitWaiting(StepPlan& plan);
  void OrderCandidates();
  void PreemptForPriority();
  enum class Admission { kAdmitted, kHeld, kNoRoom };
  Admission TryAdmit(Sequence& sequence, StepPlan& plan);
  void Admit(Sequence& sequence, size_t dp_rank, kv::PrefixHandle prefix, StepPlan& plan);
  // The dp ranks that take more, the best for the sequence first, into dp_order_.
  void OrderDpRanks(const Sequence& sequence, int32_t max_match);
  int32_t LongestMatch(const Sequence& sequence) const;
  bool SharesUnfinishedPrefix(const Sequence& sequence, int32_t max_match, size_t dp_rank) const;
  bool FitsMemory(const Sequence& sequence, const kv::PrefixHandle& prefix, size_t dp_rank) const;
  bool RoomOrOnItsWay(const Sequence& sequence) const;
  int32_t ExpectedLength(const Sequence& sequence) const;

  bool Before(const Sequence* a, const Sequence* b) const;
  void Retract(Sequence& sequence);
  void PutBack(Sequence& sequence);
  void LeaveSlot(Sequence& sequence);

  const SchedulerOptions options_;
  kv::KvCaches& caches_;
  const Clock& clock_;

  std::unordered_map<RequestId, std::unique_ptr<Sequence>> sequences_;
  WaitingQueue waiting_;
  std::vector<Sequence*> running_;  // in serving order
  std::vector<Sequence*> slots_;    // [max_running], null where free
  std::vector<DpRank> dp_ranks_;
  std::set<std::pair<int64_t, RequestId>> deadlines_;
  std::vector<Sequence*> candidates_;                  // scratch
  std::vector<std::pair<int32_t, Sequence*>> ranked_;  // scratch of OrderCandidates
  std::vector<std::pair<int32_t, size_t>> dp_order_;   // scratch of OrderDpRanks

  OutputReserve reserve_;
  StepTimes step_times_;
  int32_t score_budget_ = 0;  // scored positions left in the plan being written
  int32_t draft_budget_ = 0;  // drafts left in it
  uint64_t next_step_ = 0;
  uint64_t next_arrival_ = 0;
  uint64_t num_retractions_ = 0;
  Intake intake_ = Intake::kOpen;
};

}  // namespace hayate::sched
