// Scheduler: which waiting requests get a slot.

#include <algorithm>

#include "base/align.h"
#include "sched/scheduler.h"

namespace hayate::sched {
namespace {

// How many waiting requests one plan looks at; under lpm, the window that is sorted by prefix.
constexpr size_t kMaxCandidates = 128;
// After so many others went first, lpm serves a request by arrival.
constexpr int32_t kMaxBypassed = 64;
// How many more sequences than the emptiest a dp rank may run and still get those whose prefix it
// has.
constexpr int32_t kMaxLead = 4;

}  // namespace

bool Scheduler::AnyTakesMore() const {
  return std::ranges::any_of(dp_ranks_, [](const DpRank& rank) { return rank.takes_more(); });
}

void Scheduler::AdmitWaiting(StepPlan& plan) {
  if (waiting_.empty() || !AnyTakesMore()) return;
  OrderCandidates();
  for (Sequence* candidate : candidates_) {
    if (!AnyTakesMore()) return;
    // Retracted with a step still in flight: its newest token is not known yet.
    if (candidate->late > 0) continue;
    const Admission outcome = TryAdmit(*candidate, plan);
    if (outcome == Admission::kNoRoom) return;  // nobody overtakes a large request for ever
  }
}

int32_t Scheduler::LongestMatch(const Sequence& sequence) const {
  int32_t longest = 0;
  for (size_t dp_rank = 0; dp_rank < dp_ranks_.size(); ++dp_rank) {
    longest =
        std::max(longest, CacheOf(dp_rank).MatchLength(sequence.request.cache_namespace,
                                                       sequence.tokens, sequence.known() - 1));
  }
  return longest;
}

bool Scheduler::AnyBegun() const {
  return std::ranges::any_of(sequences_,
                             [](const auto& entry) { return entry.second->admitted_before; });
}

void Scheduler::OrderCandidates() {
  if (intake_ == Intake::kBegunOnly) {
    waiting_.Head(waiting_.size(), candidates_);
    std::erase_if(candidates_, [](const Sequence* s) { return !s->admitted_before; });
  } else {
    waiting_.Head(kMaxCandidates, candidates_);
  }
  if (options_.policy != Policy::kLpm) return;
  ranked_.clear();
  for (Sequence* sequence : candidates_) {
    const int32_t match = LongestMatch(*sequence);
    const bool overdue = sequence->bypassed > kMaxBypassed;
    ranked_.emplace_back(overdue ? options_.max_context + 1 : match, sequence);
  }
  std::sort(ranked_.begin(), ranked_.end(), [](const auto& a, const auto& b) {
    return a.first != b.first ? a.first > b.first : a.second->arrival < b.second->arrival;
  });
  for (size_t i = 0; i < ranked_.size(); ++i) candidates_[i] = ranked_[i].second;
}

void Scheduler::OrderDpRanks(const Sequence& sequence, int32_t max_match) {
  dp_order_.clear();
  int32_t fewest = options_.max_running;
  for (const DpRank& dp_rank : dp_ranks_) {
    if (dp_rank.takes_more()) fewest = std::min(fewest, dp_rank.num_running);
  }
  for (size_t d = 0; d < dp_ranks_.size(); ++d) {
    if (!dp_ranks_[d].takes_more()) continue;
    // A step waits for its fullest rank, so a prefix is worth only so much of a lead.
    const bool ahead = dp_ranks_[d].num_running > fewest + kMaxLead;
    const int32_t match =
        ahead || dp_ranks_.size() == 1
            ? 0
            : CacheOf(d).MatchLength(sequence.request.cache_namespace, sequence.tokens, max_match);
    dp_order_.emplace_back(match, d);
  }
  std::ranges::stable_sort(dp_order_, [this](const auto& a, const auto& b) {
    if (a.first != b.first) return a.first > b.first;
    return dp_ranks_[a.second].num_running < dp_ranks_[b.second].num_running;
  });
}

Scheduler::Admission Scheduler::TryAdmit(Sequence& sequence, StepPlan& plan) {
  // The last token is always computed, for its logits; so is every prompt position to be scored.
  int32_t max_match = sequence.known() - 1;
  if (sequence.wants_scores()) max_match = std::min(max_match, sequence.score_next);
  OrderDpRanks(sequence, max_match);
  for (const auto& [match, dp_rank] : dp_order_) {
    if (SharesUnfinishedPrefix(sequence, max_match, dp_rank)) return Admission::kHeld;
    kv::PrefixHandle prefix =
        CacheOf(dp_rank).Match(sequence.request.cache_namespace, sequence.tokens, max_match);
    if (!FitsMemory(sequence, prefix, dp_rank)) continue;
    Admit(sequence, dp_rank, std::move(prefix), plan);
    return Admission::kAdmitted;
  }
  return Admission::kNoRoom;
}

void Scheduler::Admit(Sequence& sequence, size_t dp_rank, kv::PrefixHandle prefix, StepPlan& plan) {
  waiting_.Erase(&sequence);
  sequence.slot = dp_ranks_[dp_rank].free_slots.back();
  dp_ranks_[dp_rank].free_slots.pop_back();
  ++dp_ranks_[dp_rank].num_running;
  slots_[static_cast<size_t>(sequence.slot.value)] = &sequence;
  if (!sequence.admitted_before) {
    sequence.admitted_before = true;
    sequence.cached_tokens = prefix.num_tokens();
    sequence.admitted_ns = clock_.NowNs();
  }
  sequence.cache = CacheOf(dp_rank).Begin(sequence.slot, std::move(prefix), sequence.known());
  sequence.planned = sequence.cache->first_position();
  sequence.cache->NameBy(sequence.request.prefix_keys);
  const auto place =
      std::upper_bound(running_.begin(), running_.end(), &sequence,
                       [this](const Sequence* a, const Sequence* b) { return Before(a, b); });
  running_.insert(place, &sequence);
  if (options_.policy == Policy::kLpm) {
    for (Sequence* other : candidates_) other->bypassed += other->arrival < sequence.arrival;
  }
  // Without memory for its first chunk it keeps the slot and is served by the next plan.
  (void)PlanRow(sequence, plan);
}

bool Scheduler::SharesUnfinishedPrefix(const Sequence& sequence, int32_t max_match,
                                       size_t dp_rank) const {
  if (!options_.prefix_reuse || dp_ranks_[dp_rank].num_running == 0) return false;
  const int32_t page = caches_.page_tokens();
  const int32_t match_length =
      CacheOf(dp_rank).MatchLength(sequence.request.cache_namespace, sequence.tokens, max_match);
  for (const Sequence* other : running_) {
    if (DpRankOf(other->slot) != dp_rank) continue;
    // Worth waiting for: at least one page more than what is cached, computed but not yet
    // published.
    const int32_t useful = std::min(AlignDown(other->known(), page), max_match);
    if (useful < match_length + page || other->cache->num_published() >= useful) continue;
    if (other->request.cache_namespace != sequence.request.cache_namespace) continue;
    const auto limit = other->tokens.begin() + useful;
    const auto differs = std::mismatch(other->tokens.begin(), limit, sequence.tokens.begin()).first;
    if (differs - other->tokens.begin() >= match_length + page) return true;
  }
  return false;
}

int32_t Scheduler::ExpectedLength(const Sequence& sequence) const {
  return sequence.length() + reserve_.TokensFor(std::max(0, sequence.remaining_output()));
}

bool Scheduler::FitsMemory(const Sequence& sequence, const kv::PrefixHandle& prefix,
                           size_t dp_rank) const {
  if (dp_ranks_[dp_rank].num_running == 0) return true;  // alone it fits: Validate said so
  const kv::KvCache& cache = CacheOf(dp_rank);
  const int32_t chunk = options_.chunked_prefill_size;
  for (int group = 0; group < cache.num_groups(); ++group) {
    int64_t need = cache.PeakPages(group, ExpectedLength(sequence), chunk) - prefix.num_pages() +
                   prefix.pinned_begin(group);
    for (const Sequence* other : running_) {
      if (DpRankOf(other->slot) != dp_rank) continue;
      need += cache.PeakPages(group, ExpectedLength(*other), chunk) -
              cache.PeakPages(group, other->cache->num_reserved(), chunk);
    }
    if (need > cache.num_available(group)) return false;
  }
  return true;
}

bool Scheduler::RoomOrOnItsWay(const Sequence& sequence) const {
  const kv::PrefixHandle no_prefix;
  for (size_t dp_rank = 0; dp_rank < dp_ranks_.size(); ++dp_rank) {
    if (dp_ranks_[dp_rank].free_slots.empty()) continue;
    if (FitsMemory(sequence, no_prefix, dp_rank) || AnyDeferred(dp_rank)) return true;
  }
  return false;
}

void Scheduler::PreemptForPriority() {
  if (intake_ == Intake::kBegunOnly) return;
  waiting_.Head(1, candidates_);
  if (candidates_.empty() || running_.empty()) return;
  const Sequence& wanted = *candidates_.front();
  // One victim a step: its pages need a step to come back anyway.
  Sequence& victim = *running_.back();
  if (wanted.request.priority - victim.request.priority < options_.preemption_threshold) return;
  if (!RoomOrOnItsWay(wanted)) Retract(victim);
}

}  // namespace hayate::sched
