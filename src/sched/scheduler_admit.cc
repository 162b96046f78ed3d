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

}  // namespace

void Scheduler::AdmitWaiting(StepPlan& plan) {
  if (waiting_.empty() || free_slots_.empty() || prefill_budget_ <= 0) return;
  OrderCandidates();
  for (Sequence* candidate : candidates_) {
    if (free_slots_.empty() || prefill_budget_ <= 0) return;
    // Retracted with a step still in flight: its newest token is not known yet.
    if (candidate->late > 0) continue;
    const Admission outcome = TryAdmit(*candidate, plan);
    if (outcome == Admission::kNoRoom) return;  // nobody overtakes a large request for ever
  }
}

void Scheduler::OrderCandidates() {
  waiting_.Head(kMaxCandidates, candidates_);
  if (options_.policy != Policy::kLpm) return;
  ranked_.clear();
  for (Sequence* sequence : candidates_) {
    const int32_t match = cache_.MatchLength(sequence->request.cache_namespace, sequence->tokens,
                                             sequence->known() - 1);
    const bool overdue = sequence->bypassed > kMaxBypassed;
    ranked_.emplace_back(overdue ? options_.max_context + 1 : match, sequence);
  }
  std::sort(ranked_.begin(), ranked_.end(), [](const auto& a, const auto& b) {
    return a.first != b.first ? a.first > b.first : a.second->arrival < b.second->arrival;
  });
  for (size_t i = 0; i < ranked_.size(); ++i) candidates_[i] = ranked_[i].second;
}

Scheduler::Admission Scheduler::TryAdmit(Sequence& sequence, StepPlan& plan) {
  // The last token is always computed, for its logits; so is every prompt position to be scored.
  int32_t max_match = sequence.known() - 1;
  if (sequence.wants_scores()) max_match = std::min(max_match, sequence.score_next);
  const std::string& name_space = sequence.request.cache_namespace;
  if (SharesUnfinishedPrefix(sequence, max_match)) return Admission::kHeld;
  kv::PrefixHandle prefix = cache_.Match(name_space, sequence.tokens, max_match);
  if (!FitsMemory(sequence, prefix)) return Admission::kNoRoom;

  waiting_.Erase(&sequence);
  sequence.slot = free_slots_.back();
  free_slots_.pop_back();
  slots_[static_cast<size_t>(sequence.slot.value)] = &sequence;
  sequence.planned = prefix.num_tokens();
  if (!sequence.admitted_before) {
    sequence.admitted_before = true;
    sequence.cached_tokens = sequence.planned;
    sequence.admitted_ns = clock_.NowNs();
  }
  sequence.cache = cache_.Begin(sequence.slot, std::move(prefix), sequence.known());
  const auto place =
      std::upper_bound(running_.begin(), running_.end(), &sequence,
                       [this](const Sequence* a, const Sequence* b) { return Before(a, b); });
  running_.insert(place, &sequence);
  if (options_.policy == Policy::kLpm) {
    for (Sequence* other : candidates_) other->bypassed += other->arrival < sequence.arrival;
  }
  // Without memory for its first chunk it keeps the slot and is served by the next plan.
  (void)PlanRow(sequence, plan);
  return Admission::kAdmitted;
}

bool Scheduler::SharesUnfinishedPrefix(const Sequence& sequence, int32_t max_match) const {
  if (!options_.prefix_reuse || running_.empty()) return false;
  const int32_t page = cache_.page_tokens();
  const int32_t match_length =
      cache_.MatchLength(sequence.request.cache_namespace, sequence.tokens, max_match);
  for (const Sequence* other : running_) {
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

bool Scheduler::FitsMemory(const Sequence& sequence, const kv::PrefixHandle& prefix) const {
  if (running_.empty()) return true;  // alone it fits: Validate said so
  const int32_t chunk = options_.chunked_prefill_size;
  for (int group = 0; group < cache_.num_groups(); ++group) {
    int64_t need = cache_.PeakPages(group, ExpectedLength(sequence), chunk) - prefix.num_pages() +
                   prefix.pinned_begin(group);
    for (const Sequence* other : running_) {
      need += cache_.PeakPages(group, ExpectedLength(*other), chunk) -
              cache_.PeakPages(group, other->cache->num_reserved(), chunk);
    }
    if (need > cache_.num_available(group)) return false;
  }
  return true;
}

void Scheduler::PreemptForPriority() {
  waiting_.Head(1, candidates_);
  if (candidates_.empty() || running_.empty()) return;
  const Sequence& wanted = *candidates_.front();
  // One victim a step: its pages need a step to come back anyway.
  Sequence& victim = *running_.back();
  if (wanted.request.priority - victim.request.priority < options_.preemption_threshold) return;
  const kv::PrefixHandle no_prefix;
  if (!free_slots_.empty() && FitsMemory(wanted, no_prefix)) return;
  if (AnyDeferred() && !free_slots_.empty()) return;  // room is on its way
  Retract(victim);
}

}  // namespace hayate::sched
