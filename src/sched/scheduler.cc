#include "sched/scheduler.h"

#include <algorithm>

#include "base/error.h"

namespace hayate::sched {

Scheduler::Scheduler(const SchedulerOptions& options, kv::KvCaches& caches, const Clock& clock)
    : options_(options), caches_(caches), clock_(clock), waiting_(options.policy) {
  CHECK_EQ(options.num_dp_ranks, caches.num_dp_ranks());
  CHECK_GE(options.max_running, options.num_dp_ranks);
  CHECK_GT(options.chunked_prefill_size, 0);
  CHECK_GT(options.max_scored_tokens, 0);
  slots_.resize(static_cast<size_t>(options.max_running));
  running_.reserve(slots_.size());
  dp_ranks_.resize(static_cast<size_t>(options.num_dp_ranks));
  for (SlotId slot{options.max_running - 1}; slot.value >= 0; --slot.value) {
    dp_ranks_[DpRankOf(slot)].free_slots.push_back(slot);
  }
}

Status Scheduler::Validate(const Request& request) const {
  const auto prompt = static_cast<int64_t>(request.prompt.size());
  const int64_t total = prompt + request.sampling.max_new_tokens;
  if (prompt == 0) return InvalidField("prompt", "holds no token");
  if (total > options_.max_context) {
    return Error(ErrorCode::kContextTooLong,
                 "{} prompt tokens and {} output tokens exceed the context of {} tokens", prompt,
                 request.sampling.max_new_tokens, options_.max_context);
  }
  const kv::KvCache& cache = caches_.of(0);  // equal in size
  for (int group = 0; group < cache.num_groups(); ++group) {
    const int32_t need =
        cache.PeakPages(group, static_cast<int32_t>(total), options_.chunked_prefill_size);
    if (need > cache.counts(group).usable) {
      return Error(ErrorCode::kContextTooLong,
                   "{} tokens need {} pages of cache group '{}', the pool has {}", total, need,
                   cache.layout().groups[static_cast<size_t>(group)].name,
                   cache.counts(group).usable);
    }
  }
  return OkStatus();
}

Sequence& Scheduler::Add(Request request) {
  auto owned = std::make_unique<Sequence>();
  Sequence& sequence = *owned;
  sequence.tokens = request.prompt;
  sequence.request = std::move(request);
  sequence.arrival = next_arrival_++;
  // The first prompt token has nothing before it that could predict it.
  const int32_t scored_from = sequence.request.logprobs.prompt_start;
  if (scored_from >= 0) sequence.score_next = std::max(scored_from, 1) - 1;
  if (sequence.request.deadline_ns != kNoDeadline) {
    deadlines_.emplace(sequence.request.deadline_ns, sequence.request.id);
  }
  waiting_.Insert(&sequence);
  const bool fresh = sequences_.emplace(sequence.request.id, std::move(owned)).second;
  CHECK(fresh) << "request id " << sequence.request.id << " is in use";
  return sequence;
}

Sequence* Scheduler::Find(RequestId id) {
  const auto it = sequences_.find(id);
  return it == sequences_.end() ? nullptr : it->second.get();
}

Sequence* Scheduler::Any() {
  return sequences_.empty() ? nullptr : sequences_.begin()->second.get();
}

Sequence* Scheduler::NextExpired(int64_t now_ns) {
  if (deadlines_.empty() || deadlines_.begin()->first > now_ns) return nullptr;
  return Find(deadlines_.begin()->second);
}

int64_t Scheduler::next_deadline_ns() const {
  return deadlines_.empty() ? kNoDeadline : deadlines_.begin()->first;
}

void Scheduler::Verified(Sequence& sequence, const StepRow& row, int32_t num_tokens) {
  CHECK(num_tokens >= 1 && num_tokens <= row.num_drafts + 1) << num_tokens;
  CHECK_EQ(sequence.late, 1);
  sequence.late = num_tokens;
  // A retracted one computes everything again, whatever stood.
  if (sequence.running()) sequence.planned = row.end - row.num_drafts + num_tokens - 1;
  ++sequence.num_verifies;
  sequence.num_drafts += row.num_drafts;
  sequence.num_accepted_drafts += num_tokens - 1;
}

void Scheduler::Append(Sequence& sequence, TokenId token) {
  CHECK_GT(sequence.late, 0);
  --sequence.late;
  sequence.tokens.push_back(token);
  // The new token itself is not computed yet: only what stands before it can be shared.
  if (sequence.running()) {
    sequence.cache->Publish(sequence.tokens, std::min(sequence.planned, sequence.known() - 1));
  }
}

void Scheduler::Finish(Sequence& sequence, FinishMode mode) {
  if (sequence.running()) {
    if (mode == FinishMode::kPublish) {
      sequence.cache->Publish(sequence.tokens, std::min(sequence.planned, sequence.known()));
    }
    LeaveSlot(sequence);
  } else {
    waiting_.Erase(&sequence);
  }
  deadlines_.erase({sequence.request.deadline_ns, sequence.request.id});
  const RequestId id = sequence.request.id;
  sequences_.erase(id);
}

void Scheduler::Retract(Sequence& sequence) {
  reserve_.OnRetraction();
  PutBack(sequence);
}

void Scheduler::PutBack(Sequence& sequence) {
  ++num_retractions_;
  ++sequence.retractions;
  LeaveSlot(sequence);
  sequence.planned = 0;
  waiting_.Insert(&sequence);
}

void Scheduler::RetractAll() {
  while (!running_.empty()) PutBack(*running_.back());
}

void Scheduler::LeaveSlot(Sequence& sequence) {
  sequence.drafts.clear();
  sequence.cache.reset();  // its pages come back once the steps in flight are done
  slots_[static_cast<size_t>(sequence.slot.value)] = nullptr;
  DpRank& dp_rank = dp_ranks_[DpRankOf(sequence.slot)];
  dp_rank.free_slots.push_back(sequence.slot);
  --dp_rank.num_running;
  sequence.slot = {-1};
  sequence.slot_started = false;
  running_.erase(std::find(running_.begin(), running_.end(), &sequence));
}

bool Scheduler::Before(const Sequence* a, const Sequence* b) const {
  if (options_.policy == Policy::kPriority && a->request.priority != b->request.priority) {
    return a->request.priority > b->request.priority;
  }
  return a->arrival < b->arrival;
}

SchedulerStats Scheduler::stats() const {
  int32_t num_free_slots = 0;
  for (const DpRank& dp_rank : dp_ranks_) {
    num_free_slots += static_cast<int32_t>(dp_rank.free_slots.size());
  }
  return {.num_running = static_cast<int32_t>(running_.size()),
          .num_waiting = static_cast<int32_t>(waiting_.size()),
          .num_free_slots = num_free_slots,
          .num_retractions = num_retractions_,
          .new_token_ratio = reserve_.ratio()};
}

}  // namespace hayate::sched
