#include "engine/drafting.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "base/check.h"

namespace hayate::engine {
namespace {

// Tokens indexed between two steps: a long prompt is taken in over several, a millisecond each.
constexpr int32_t kMaxFill = 8192;
// Waiting for a commit costs the overlap of its step: not for a guess less likely than this.
constexpr float kLikely = 0.5f;
// Guesses from the text that are less likely are not verified even where that seems free: what the
// measured times are wrong by is more than they bring.
constexpr float kLeastChance = 0.1f;
// Drafts that nobody asked for must cost nothing: the wait wants a tenth more tokens a second,
// beyond what the overlap is worth and the measured times may be wrong by.
constexpr double kUnaskedGain = 1.1;
// The steps wait for a drafter if its drafts were worth verifying so often; else every so many
// plans.
constexpr float kUseful = 0.125f;
constexpr float kUsefulStep = 0.0625f;
constexpr uint32_t kRetryEvery = 32;

}  // namespace

Drafting::Drafting(const DraftingOptions& options, std::optional<spec::StepCost> cost,
                   SpeculationMetrics& metrics)
    : options_(options), cost_(std::move(cost)), metrics_(metrics) {
  CHECK_GE(options.max_drafts, 1);
  CHECK_GE(options.max_step_drafts, options.max_drafts);
  CHECK(options.forced_accept_length == 0 || !cost_);
}

void Drafting::Update(const sched::Scheduler& scheduler, GrammarStates& grammars) {
  fill_budget_ = kMaxFill;
  step_ = StepOf(scheduler);
  for (const sched::Sequence* sequence : scheduler.running()) {
    if (!Follows(*sequence)) continue;
    State& state = states_[sequence->request.id];
    if (options_.source != DraftSource::kModel) UpdateIndex(*sequence, state);
    state.keen = WorthWaiting(state);
    const auto grammar = grammars.find(sequence->request.id);
    if (state.keen || grammar == grammars.end()) continue;
    state.keen = ForcedWorthWaiting(state, grammar->second);
  }
}

void Drafting::UpdateIndex(const sched::Sequence& sequence, State& state) {
  spec::NgramIndex& index = state.index;
  // What stands in the prompt tells little of how the answer repeats it: it is not judged.
  const int32_t quiet = sequence.prompt_length() - 1;
  if (index.size() < quiet) {
    const int32_t end = std::min(quiet, index.size() + fill_budget_);
    fill_budget_ -= end - index.size();
    index.Fill(sequence.tokens, end);
    if (end < quiet) return;
  }
  while (index.size() < sequence.known()) {
    const bool generated = index.size() >= sequence.prompt_length();
    const spec::NgramIndex::Outcome outcome = index.Push(sequence.tokens);
    if (generated && outcome.guessed) state.by_match.Observe(outcome.match_length, outcome.hit);
  }
}

double Drafting::RateToBeat() const {
  const double plain = step_.num_rows / cost_->Ns(step_.num_tokens);
  return options_.source == DraftSource::kGrammar ? kUnaskedGain * plain : plain;
}

bool Drafting::WorthWaiting(const State& state) const {
  if (!cost_) return true;
  if (options_.source != DraftSource::kModel) return NgramWorthWaiting(state);
  return usefulness_ >= kUseful || num_plans_ % kRetryEvery == 0;
}

// The token in flight is likely to be the one guessed, and drafts behind it would pay.
bool Drafting::NgramWorthWaiting(const State& state) const {
  const int32_t match = state.index.match_length();
  if (!state.index.has_match() || state.by_match.Rate(match) < kLikely) return false;
  const double plain = RateToBeat();
  double tokens = step_.num_rows;
  float chance = 1.0f;
  for (int32_t i = 1; i <= options_.max_drafts; ++i) {
    chance *= state.by_match.Rate(match + i);
    tokens += static_cast<double>(chance);
    if (tokens / cost_->Ns(step_.num_tokens + i) > plain) return true;
  }
  return false;
}

// The first forced token is the one in flight.
bool Drafting::ForcedWorthWaiting(const State& state, GrammarState& grammar) const {
  const auto forced =
      static_cast<int32_t>(grammar.Forced(static_cast<size_t>(options_.max_drafts) + 1).size());
  const double plain = RateToBeat();
  double tokens = step_.num_rows;
  float chance = state.spelling.Rate();
  for (int32_t i = 1; i < forced && chance >= kLikely; ++i) {
    chance *= state.spelling.Rate();
    tokens += static_cast<double>(chance);
    if (tokens / cost_->Ns(step_.num_tokens + i) > plain) return true;
  }
  return false;
}

bool Drafting::ShouldWait(const sched::Scheduler& scheduler) const {
  return std::ranges::any_of(scheduler.running(), [this](const sched::Sequence* sequence) {
    if (sequence->late == 0) return false;
    const bool verifies = sequence->planned >= sequence->length();
    return verifies || (CanDraft(*sequence) && states_.at(sequence->request.id).keen);
  });
}

bool Drafting::Follows(const sched::Sequence& sequence) const {
  return options_.source != DraftSource::kGrammar || sequence.request.grammar != nullptr;
}

bool Drafting::CanDraft(const sched::Sequence& sequence) const {
  // The last token of an answer has none behind it.
  return Follows(sequence) && sequence.remaining_output() > 1 &&
         (options_.counts_what_stands || !sequence.request.sampling.has_penalties());
}

int32_t Drafting::MaxDrafts(const sched::Sequence& sequence) const {
  return std::min(options_.max_drafts, sequence.remaining_output() - 1);
}

spec::DraftLengths::Step Drafting::StepOf(const sched::Scheduler& scheduler) const {
  spec::DraftLengths::Step step{.max_drafts = options_.max_step_drafts};
  int32_t num_prefill = 0;
  for (const sched::Sequence* sequence : scheduler.running()) {
    const int32_t pending = sequence->length() - sequence->planned;
    (pending > 1 ? num_prefill : step.num_rows) += std::max(1, pending);
  }
  step.num_tokens = step.num_rows + std::min(num_prefill, options_.max_prefill);
  return step;
}

void Drafting::Propose(sched::Scheduler& scheduler, GrammarStates& grammars) {
  ++num_plans_;
  drafted_.clear();
  survival_.clear();
  for (sched::Sequence* sequence : scheduler.running()) {
    sequence->drafts.clear();
    sequence->forced_accepts = -1;
    if (!sequence->decodes_known() || !CanDraft(*sequence)) continue;
    State& state = states_.at(sequence->request.id);
    Draft(*sequence, state);
    if (const auto it = grammars.find(sequence->request.id); it != grammars.end()) {
      sequence->drafts.resize(it->second.CountAllowed(sequence->drafts));
      DraftForced(*sequence, state, it->second);
    }
    if (sequence->drafts.empty()) continue;
    drafted_.push_back(sequence);
    survival_.push_back(std::span<const float>(state.survival).first(sequence->drafts.size()));
  }
  if (drafted_.empty()) return;
  const int32_t num_drafts = ChooseLengths();
  metrics_.chosen_drafts.Set(num_drafts);
  usefulness_ += kUsefulStep * ((num_drafts > 0 ? 1.0f : 0.0f) - usefulness_);
}

int32_t Drafting::ChooseLengths() {
  if (!cost_) {
    size_t num_drafts = 0;
    for (const auto& survival : survival_) num_drafts += survival.size();
    return std::min(static_cast<int32_t>(num_drafts), options_.max_step_drafts);
  }
  chosen_.resize(drafted_.size());
  const int32_t num_drafts = lengths_.Choose(*cost_, step_, survival_, chosen_);
  for (size_t i = 0; i < drafted_.size(); ++i) {
    drafted_[i]->drafts.resize(static_cast<size_t>(chosen_[i]));
  }
  return num_drafts;
}

void Drafting::Draft(sched::Sequence& sequence, State& state) const {
  const int32_t limit = MaxDrafts(sequence);
  float chance = 1.0f;
  state.survival.clear();
  state.num_forced = 0;
  if (options_.source != DraftSource::kModel) {
    const spec::NgramIndex& index = state.index;
    if (index.has_match() && index.size() == sequence.known()) {
      index.Guess(sequence.tokens, limit, sequence.drafts);
    }
    for (size_t i = 0; i < sequence.drafts.size(); ++i) {
      chance *= state.by_match.Rate(index.match_length() + static_cast<int32_t>(i));
      if (cost_ && chance < kLeastChance) break;
      state.survival.push_back(chance);
    }
    if (cost_) sequence.drafts.resize(state.survival.size());
  } else if (state.proposed_at == sequence.known()) {
    const size_t count = std::min(state.proposed.size(), static_cast<size_t>(limit));
    sequence.drafts.assign(state.proposed.begin(),
                           state.proposed.begin() + static_cast<ptrdiff_t>(count));
    for (size_t i = 0; i < count; ++i) {
      chance *= i < state.confidences.size()
                    ? state.confidences[i]
                    : state.by_place.Rate(by_place_, static_cast<int32_t>(i));
      state.survival.push_back(chance);
    }
  }
  if (options_.forced_accept_length > 0) Force(sequence, state, static_cast<size_t>(limit));
}

void Drafting::Force(sched::Sequence& sequence, State& state, size_t limit) const {
  sequence.drafts.resize(limit, sequence.tokens.back());
  state.survival.resize(limit, 1.0f);
  sequence.forced_accepts =
      static_cast<int32_t>(std::floor(state.owed + options_.forced_accept_length - 1.0));
}

void Drafting::DraftForced(sched::Sequence& sequence, State& state, GrammarState& grammar) const {
  if (sequence.forced_accepts >= 0) return;
  const std::span<const TokenId> forced = grammar.Forced(static_cast<size_t>(MaxDrafts(sequence)));
  const std::span<const float> others = std::span(state.survival).first(sequence.drafts.size());
  std::vector<float> survival;
  float chance = 1.0f;
  for (size_t i = 0; i < forced.size(); ++i) survival.push_back(chance *= state.spelling.Rate());
  const auto expected = [](std::span<const float> chances) {
    return std::accumulate(chances.begin(), chances.end(), 0.0f);
  };
  if (expected(survival) <= expected(others)) return;
  sequence.drafts.assign(forced.begin(), forced.end());
  state.survival = std::move(survival);
  state.num_forced = static_cast<int32_t>(forced.size());
}

void Drafting::Committed(const sched::Sequence& sequence, const StepRow& row, RowResult& result) {
  if (!Follows(sequence)) return;
  State& state = states_[sequence.request.id];
  state.proposed = std::move(result.drafts);
  state.confidences = std::move(result.draft_confidences);
  state.proposed_at = sequence.known();
  if (row.num_drafts == 0) {
    state.by_place.Forget();
    return;
  }
  const auto accepted = static_cast<int32_t>(result.tokens.size()) - 1;
  metrics_.ObserveVerify(row.num_drafts, accepted);
  if (row.forced_accepts >= 0) {
    state.owed += options_.forced_accept_length - 1.0 - accepted;
  } else if (state.num_forced > 0) {
    state.spelling.Observe(row.num_drafts, accepted);
  } else {
    state.by_place.Observe(by_place_, row.num_drafts, accepted);
  }
}

}  // namespace hayate::engine
