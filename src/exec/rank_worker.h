#pragma once
// A rank that computes a step in the call (CPU). Made and used on the rank's own thread; all ranks
// of the process share the logits and last tokens, and meet in the group's barriers.

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/status.h"
#include "comm/group.h"
#include "comm/rank_layout.h"
#include "comm/token_exchange.h"
#include "core/step_plan.h"
#include "core/step_result.h"
#include "exec/draft_stage.h"
#include "exec/slot_sampler.h"
#include "exec/slot_tables.h"
#include "exec/staged_step.h"
#include "exec/worker.h"
#include "models/model.h"
#include "tensor/buffer.h"
#include "tensor/workspace.h"

namespace hayate::exec {

// What all ranks of the process write to and read from. Every use is ordered by the group's
// barriers.
struct SharedStep {
  float* logits = nullptr;         // [max_logits, V], of the ranks of one attention group
  int32_t* last_tokens = nullptr;  // [max_slots]
  int32_t* guesses = nullptr;      // [max_slots], of one attention group, with a drafter
};

class RankWorker final : public Worker {
 public:
  // Allocates pools (`pool_pages` per group, the drafter's last), workspace and tables. The model,
  // the drafter (null: none), the device, the attention group and what `place` points to outlive
  // the worker.
  static Result<std::unique_ptr<RankWorker>> Create(Device& device, models::Model& model,
                                                    comm::Group& group, const StepLimits& limits,
                                                    std::span<const int32_t> pool_pages,
                                                    SharedStep shared, ReplicaPlace place = {},
                                                    models::DraftModel* drafter = nullptr);

  void ShareWith(Worker&) override {}  // Create was given it
  Status WarmUp() override { return OkStatus(); }
  // Each rank fills the results of the rows whose slots it owns. On return every rank of the
  // replica has finished the step, or one has failed and all groups of this rank are poisoned.
  void Run(const StepPlan& plan, StepResult& result) override;
  void Finish(StepResult&) override {}
  bool Done() override { return true; }
  void AwaitSteps() override {}
  bool UseIdleTime() override { return false; }
  void UseModel(models::Model& model) override;

 private:
  RankWorker(models::Model& model, comm::Group& group, const StepLimits& limits, SharedStep shared,
             const ReplicaPlace& place, Stream stream, Buffer workspace);
  Status AddDrafter(Device& device, models::DraftModel& drafter, const StepLimits& limits);
  int num_model_groups() const { return static_cast<int>(model_->cache_layout().groups.size()); }
  int64_t PageBytes(int group) const;
  models::ForwardContext Context();
  // A failure seen in one group is told to the others of this rank: nobody waits for it there.
  bool Failed();
  void CopyPages(const StepPlan& plan);

  models::Model* model_;
  comm::Group& group_;
  SharedStep shared_;
  ReplicaPlace place_;
  int dp_rank_;
  Stream stream_;
  Workspace workspace_;
  std::vector<Buffer> pools_;           // per cache group
  std::vector<std::byte*> pool_bases_;  // per cache group
  Buffer hidden_;                       // [max_logits, H] f32
  SlotTables tables_;
  StagedStep staged_;
  SlotSampler sampler_;
  models::DraftModel* drafter_ = nullptr;
  std::optional<DraftStage> drafts_;  // with a drafter
  Buffer features_;                   // [max_tokens, F] f32
};

}  // namespace hayate::exec
