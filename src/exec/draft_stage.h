#pragma once
// The drafter's part of a step on one rank of a device that computes in the call (CPU): hands it
// what the step committed, draws its guesses with the requests' own samplers, and puts them into
// the results. All ranks of an attention group call it with equal plans and results; the rows are
// their dp rank's. Owner: the rank's thread.

#include <cstdint>
#include <span>
#include <vector>

#include "comm/group.h"
#include "core/step_plan.h"
#include "core/step_result.h"
#include "exec/committed_tokens.h"
#include "exec/slot_sampler.h"
#include "exec/slot_tables.h"
#include "exec/staged_step.h"
#include "models/draft_model.h"
#include "tensor/workspace.h"

namespace hayate::exec {

class DraftStage {
 public:
  struct Parts {
    models::DraftModel* drafter;
    comm::Group* group;
    SlotSampler* sampler;
    int32_t* tokens;  // [max_rows], the ranks of the attention group share it
    int first_group;  // the drafter's first cache group in the layout of the process
  };
  DraftStage(const Parts& parts, const StepLimits& limits);

  // After every rank has sampled the step that `staged` holds. `features` as the target left them,
  // or null. The context's pools are the drafter's; the step's logits are written over.
  void Run(const StepPlan& plan, const StagedStep& staged, const SlotTables& tables,
           const float* features, const models::ForwardContext& context,
           std::span<RowResult> results);

 private:
  void GatherPages(const StepPlan& plan, const SlotTables& tables);
  void Propose(const StepPlan& plan, const StagedStep& staged,
               const models::ForwardContext& context, std::span<RowResult> results);

  const Parts parts_;
  const StepLimits limits_;
  CommittedTokens committed_;                      // of the step
  std::vector<std::vector<int32_t>> page_tables_;  // per group of the drafter [R, stride]
  std::vector<ops::AttentionRows> rows_;           // per group of the drafter
  std::vector<int32_t> reach_;                     // [R] positions that need pages
  std::vector<float> confidences_;                 // [N]
};

}  // namespace hayate::exec
