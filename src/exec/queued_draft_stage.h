#pragma once
// The drafter's part of a step on a device that works off a queue. The host waits for the tokens
// that the target drew, since what stands decides what the drafter is given; then everything is
// queued in one go, and the guesses of one pass feed the next one on the device:
//
//   fetch inputs → Advance → Next(0) → draw → Next(1) → draw → … → copy back
//
// The ranks of an attention group run it together for the rows of their dp rank; the first draws,
// from logits that all wrote their slice of, and leaves what it drew where all read it. Owner: the
// rank's thread, but for Finish.

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/status.h"
#include "core/step_plan.h"
#include "core/step_result.h"
#include "exec/committed_tokens.h"
#include "exec/sampler_stage.h"
#include "exec/staged_step.h"
#include "exec/step_stage.h"
#include "models/draft_model.h"
#include "tensor/buffer.h"

namespace hayate::exec {

class QueuedDraftStage {
 public:
  // The drafter and the device outlive the stage.
  static Result<std::unique_ptr<QueuedDraftStage>> Create(Device& device,
                                                          models::DraftModel& drafter,
                                                          const StepLimits& limits);
  // Device memory that Create takes.
  static int64_t FixedBytes(const models::DraftModel& drafter, const StepLimits& limits);

  // After the stages of all ranks were made: where guesses of this rank and of the group's others
  // lie.
  void ShareWith(const QueuedDraftStage& first);

  struct Inputs {
    std::span<const Buffer> page_tables;  // of the drafter's groups, as QueuedWorker keeps them
    const float* features = nullptr;      // as the target left them, or null
    float* logits = nullptr;              // of the group's first rank; written over
  };
  // Queues the pass behind a step that was drawn and read. `own` is the dp rank's part of the plan,
  // row r of it row plan_rows[r] of the whole, whose `results` these are. `side`: as the step's
  // flight. The context's pools are the drafter's.
  void Run(const StepPlan& own, std::span<const int32_t> plan_rows,
           std::span<const RowResult> results, SamplerStage& sampler, const Inputs& inputs,
           const models::ForwardContext& context, size_t side);
  // Once the step is done: its guesses, into the rows that wanted them. The engine's thread, of the
  // group's first rank alone.
  void Finish(size_t side, StepResult& result) const;

 private:
  struct Flight {
    Buffer tokens;                   // pinned: [guesses, N] SampledToken
    Buffer confidences;              // pinned: [guesses, N]
    std::vector<int32_t> plan_rows;  // [N] of the whole plan
  };

  QueuedDraftStage(Device& device, models::DraftModel& drafter, const StepLimits& limits);
  Status Allocate();
  void Collect(const StepPlan& own, std::span<const int32_t> plan_rows,
               std::span<const RowResult> results);
  // Stages what was collected; its page tables are the slots'.
  models::DraftBatch StageBatch(const StepPlan& own, const Inputs& inputs);
  void Propose(const int32_t* anchors, ops::SampleRowsArgs draws, const Inputs& inputs,
               const models::ForwardContext& context, Flight& flight);

  Device& device_;
  models::DraftModel& drafter_;
  const StepLimits limits_;
  StepStage stage_;
  Buffer guesses_;                           // [max_rows] of the pass before
  const int32_t* shared_guesses_ = nullptr;  // of the group's first rank
  Buffer tokens_;                            // [guesses, N] SampledToken
  Buffer confidences_;                       // [guesses, N]
  std::array<Flight, StepStage::kNumSides> flights_;
  std::vector<TokenId> last_tokens_;  // [max_rows] that the slots drew last

  // Of the step.
  CommittedTokens committed_;
  std::vector<ops::AttentionRows> rows_;  // per group of the drafter
  std::vector<TokenId> row_tokens_;
  std::vector<SlotId> slots_;             // [N]
  std::vector<int32_t> first_positions_;  // [N] of the guesses
};

}  // namespace hayate::exec
