#pragma once
// Draws the tokens of the slots that one rank owns: keeps each slot's sampling parameters and
// counts of generated tokens between steps. Slot s belongs to rank s mod R. Owner: the rank's
// thread.

#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "core/step_plan.h"
#include "core/step_result.h"
#include "exec/staged_step.h"
#include "ops/sampling/sampling.h"
#include "tensor/workspace.h"

namespace hayate::exec {

class SlotSampler {
 public:
  struct Options {
    int rank = 0;
    int num_ranks = 1;
    int max_slots = 0;
    int32_t vocab_size = 0;
    int32_t hidden_size = 0;
  };
  explicit SlotSampler(const Options& options);

  int32_t vocab_size() const { return options_.vocab_size; }
  bool Owns(SlotId slot) const { return slot.value % options_.num_ranks == options_.rank; }
  // Takes over the parameters of the slots that start.
  void Apply(const StepPlan& plan);
  // Whether any row's slot, of whichever rank, asks for hidden states.
  bool WantsHidden(const StepPlan& plan) const;
  // Samples and scores the plan's rows whose slots this rank owns: fills results[i] for row i and
  // last_tokens[slot].
  void Run(Stream stream, Workspace& workspace, const StepPlan& plan, const StagedStep& staged,
           std::span<RowResult> results, int32_t* last_tokens);

  // A guess of the token at `position` of a slot that this rank owns, drawn as the token itself
  // would be: from equal logits it is the same. Changes nothing of the slot.
  TokenId DrawGuess(Stream stream, Workspace& workspace, SlotId slot, int32_t position,
                    float* logits);

 private:
  struct Slot {
    SamplingParams sampling;
    LogprobParams logprobs;
    int32_t prompt_length = 0;
    // [V], how often each id was generated; only where penalties ask for it.
    std::unique_ptr<int32_t[]> output_counts;
  };
  Slot& SlotOf(SlotId id) { return slots_[static_cast<size_t>(id.value / options_.num_ranks)]; }
  // Arguments of the draw of the token at `position`.
  ops::SamplingRow MakeRow(Slot& slot, int32_t position, float* logits) const;
  // Draws at the row's positions until a draft does not stand; returns the last token.
  TokenId Draw(Stream stream, Workspace& workspace, const StepPlan& plan, const StepRow& row,
               float* logits, RowResult& result);
  void Score(const Slot& slot, const StepPlan& plan, const RowLogits& where, const float* logits,
             RowResult& result) const;

  void AddHidden(const models::ForwardBatch& batch, const RowLogits& where,
                 RowResult& result) const;
  // Scores the tokens that the slot asks for by id, before penalties and masks change the row.
  std::vector<std::pair<TokenId, float>> ScoreAsked(const Slot& slot, const float* logits) const;

  Options options_;
  std::vector<Slot> slots_;         // [slots of this rank]
  std::vector<char> wants_hidden_;  // [all slots]
};

}  // namespace hayate::exec
