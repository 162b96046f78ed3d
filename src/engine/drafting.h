#pragma once
// Who guesses ahead: keeps for every sequence what its guesses come from and how good they were,
// and gives the scheduler the drafts of the next plan. Text that a grammar forces is drafted
// whatever the other guesses come from. Owner: engine thread.
//
// A draft follows the last known token, and the row that verifies it tells how many tokens came. So
// a sequence with drafts takes part in every step only if the next plan waits for the last commit.
// ShouldWait says when that is worth it for the whole batch: while rows with drafts are in flight,
// or a sequence in flight is likely to get some.

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "core/step_result.h"
#include "engine/grammar_state.h"
#include "engine/speculation_metrics.h"
#include "sched/scheduler.h"
#include "spec/acceptance.h"
#include "spec/draft_lengths.h"
#include "spec/ngram_index.h"
#include "spec/step_cost.h"

namespace hayate::engine {

enum class DraftSource : uint8_t {
  kNgram,    // the sequence's own text
  kGrammar,  // the same for sequences under a grammar, nothing for the others
  kModel,    // the worker's drafter; drafts come with the results
};

struct DraftingOptions {
  DraftSource source = DraftSource::kNgram;
  int32_t max_drafts = 0;       // of one row, ≥ 1
  int32_t max_step_drafts = 0;  // of one plan
  int32_t max_prefill = 0;      // prompt tokens of one plan
  // False: the device counts every draw for penalties, those behind a refused draft too; sequences
  // that have penalties get no drafts.
  bool counts_what_stands = true;
  // Benches: every row brings so many tokens on average, [1, max_drafts + 1], whatever is drawn,
  // and has max_drafts drafts. 0: off. Wants no cost.
  double forced_accept_length = 0;
};

using GrammarStates = std::unordered_map<RequestId, GrammarState>;

class Drafting {
 public:
  // Without a cost every row verifies all the drafts that there are, and every plan waits for the
  // last commit: what is drafted does not depend on any measured time. The metrics outlive it.
  Drafting(const DraftingOptions& options, std::optional<spec::StepCost> cost,
           SpeculationMetrics& metrics);

  // Before a plan: takes in what was committed. Then, when it will not wait, Propose.
  void Update(const sched::Scheduler& scheduler, GrammarStates& grammars);
  // With steps in flight: whether the next plan should come after their commit.
  bool ShouldWait(const sched::Scheduler& scheduler) const;
  // Gives every sequence that can have drafts its own for the next plan. Drafts that a grammar
  // refuses are cut off.
  void Propose(sched::Scheduler& scheduler, GrammarStates& grammars);

  // A row's tokens were appended to the sequence, which goes on.
  void Committed(const sched::Sequence& sequence, const StepRow& row, RowResult& result);
  void Forget(RequestId id) { states_.erase(id); }

 private:
  struct State {
    spec::NgramIndex index;
    spec::MatchAcceptance by_match;
    spec::SequenceAcceptance by_place;
    spec::SpellingAcceptance spelling;
    std::vector<TokenId> proposed;   // the drafter's, behind the first proposed_at tokens
    std::vector<float> confidences;  // one per proposed; empty: none
    int32_t proposed_at = 0;
    std::vector<float> survival;  // of the drafts of the plan being made
    int32_t num_forced = 0;       // of those drafts, by the grammar
    double owed = 0;              // forced acceptance: what rounding has left
    bool keen = false;            // worth waiting for
  };
  void UpdateIndex(const sched::Sequence& sequence, State& state);
  // Fills sequence.drafts and state.survival with all there is.
  void Draft(sched::Sequence& sequence, State& state) const;
  void Force(sched::Sequence& sequence, State& state, size_t limit) const;
  // Drafts what the grammar forces in place of what there is, where that promises more tokens.
  void DraftForced(sched::Sequence& sequence, State& state, GrammarState& grammar) const;
  // Tokens a nanosecond that a plan must promise to be waited for.
  double RateToBeat() const;
  bool WorthWaiting(const State& state) const;
  bool NgramWorthWaiting(const State& state) const;
  bool ForcedWorthWaiting(const State& state, GrammarState& grammar) const;
  // Whether anything is kept of the sequence.
  bool Follows(const sched::Sequence& sequence) const;
  // Cuts the drafts of drafted_ to the lengths that pay; returns how many are left.
  int32_t ChooseLengths();
  bool CanDraft(const sched::Sequence& sequence) const;
  int32_t MaxDrafts(const sched::Sequence& sequence) const;
  spec::DraftLengths::Step StepOf(const sched::Scheduler& scheduler) const;

  const DraftingOptions options_;
  const std::optional<spec::StepCost> cost_;
  SpeculationMetrics& metrics_;
  spec::DraftLengths lengths_;
  std::unordered_map<RequestId, State> states_;
  spec::DraftLengths::Step step_;   // the next plan without drafts, about
  int32_t fill_budget_ = 0;         // tokens that may still be indexed in this turn
  spec::PlaceAcceptance by_place_;  // of all sequences
  uint32_t num_plans_ = 0;
  // How often drafts that were there were worth verifying, moving average.
  float usefulness_ = 1.0f;

  // Of one Propose, kept for their memory; entry for entry.
  std::vector<sched::Sequence*> drafted_;
  std::vector<std::span<const float>> survival_;
  std::vector<int32_t> chosen_;
};

}  // namespace hayate::engine
