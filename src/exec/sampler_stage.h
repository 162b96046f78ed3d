#pragma once
// What a queued step's sampler needs: keeps every slot's sampling parameters between steps, writes
// the rows of SampleRows into the step's stage, and reads the results back. Sampler row i belongs
// to row i of the logits; behind those stand the rows that score tokens asked for by id. Owner: the
// rank's thread, but for ReadResults.

#include <cstdint>
#include <span>
#include <vector>

#include "core/step_plan.h"
#include "core/step_result.h"
#include "exec/step_stage.h"
#include "ops/sampling/device_sampler.h"

namespace hayate::exec {

// One step's results as they come back, and whose they are.
struct SampledStep {
  struct Row {
    int32_t plan_row = 0;    // whose result it is
    int32_t first = 0;       // sampler row of its first scored position
    int32_t num_scored = 0;  // then, if it samples, the rows of num_drafts + 1 draws
    bool samples = false;
    bool wants_logprobs = false;  // of the drawn tokens
    bool wants_hidden = false;
    int32_t num_top = 0;      // alternatives a position
    int32_t first_draft = 0;  // in drafts
    int32_t num_drafts = 0;
    int32_t forced_accepts = -1;
    // Tokens asked for by id: so many sampler rows a position from here on, positions in order.
    int32_t first_asked = 0;
    int32_t num_asked = 0;
  };
  std::vector<Row> rows;  // [R] as in the plan that was written
  std::vector<TokenId> drafts;
};

class SamplerStage {
 public:
  SamplerStage(int32_t max_slots, int32_t vocab_size);

  // The most bytes that Write takes from a stage.
  static size_t MaxBytes(int32_t max_slots, int32_t max_logits, int64_t max_outputs);

  // The most sampler rows of a step.
  static constexpr int64_t MaxRows(int32_t max_logits) {
    return int64_t{max_logits} * static_cast<int64_t>(1 + LogprobParams::kMaxTokenIds);
  }

  // Takes over the parameters of the slots that start.
  void Apply(const StepPlan& plan);
  // Whether any row's slot asks for hidden states.
  bool WantsHidden(const StepPlan& plan) const;
  // Rows that draw `num_guesses` guesses each as the slot's own tokens would be drawn, from
  // position first_positions[n] on: args.rows is [num_guesses, N], row n draws from row n of the
  // logits and leaves its token in last_tokens[n]. Penalties are left out, and nothing is counted.
  void WriteGuesses(std::span<const SlotId> slots, std::span<const int32_t> first_positions,
                    int32_t num_guesses, StepStage& stage, ops::SampleRowsArgs& args);
  // The most bytes that WriteGuesses takes.
  static size_t MaxGuessBytes(int32_t max_slots, int32_t max_guesses);
  // Fills all of `args` and `starts` but logits, state and results; describes the step in `step`.
  void Write(const StepPlan& plan, StepStage& stage, ops::SampleRowsArgs& args,
             ops::StartCountsArgs& starts, SampledStep& step);

 private:
  struct Slot {
    SamplingParams sampling;
    LogprobParams logprobs;
    int32_t prompt_length = 0;
  };
  void AddRow(const StepPlan& plan, const StepRow& row, SampledStep& step);
  void AddDraws(const Slot& slot, const StepRow& row);
  // A draw with the slot's parameters, penalties apart, and its bias list.
  ops::SamplerRow StartDraw(const Slot& slot);
  // Appends what must not be drawn at `position`, if anything.
  void AddBanned(const Slot& slot, int32_t position);
  void ClearLists();
  void PutLists(StepStage& stage, ops::SampleRowsArgs& args) const;
  void AddAsked(const StepPlan& plan, SampledStep& step);
  void WriteStarts(const StepPlan& plan, StepStage& stage, ops::StartCountsArgs& starts);

  int32_t vocab_size_;
  std::vector<Slot> slots_;
  // Of the step being written; kept for their memory.
  std::vector<ops::SamplerRow> rows_;
  std::vector<int32_t> bias_ids_;
  std::vector<float> bias_values_;
  std::vector<int32_t> banned_;
  std::vector<ops::CountsStart> starts_;
  std::vector<int32_t> outputs_;
};

// All positions of a row with drafts are drawn; the first that differs from its draft ends the row.
// Completes the results of the step's rows from `step` in host memory. Any thread.
void ReadResults(const SampledStep& step, const ops::SampledToken* tokens, const int32_t* top_ids,
                 const float* top_logprobs, StepResult& result);

// Sums the hidden states [L, `width`] of the rows that asked for them.
void AddHidden(const SampledStep& step, const float* hidden, int32_t width, StepResult& result);

}  // namespace hayate::exec
