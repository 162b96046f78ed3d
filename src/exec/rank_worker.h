#pragma once
// A rank that computes a step in the call (CPU). Made and used on the rank's own thread; all ranks
// of the process share the logits and last tokens, and meet in the group's barriers.

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/status.h"
#include "comm/group.h"
#include "core/step_plan.h"
#include "core/step_result.h"
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
  float* logits = nullptr;         // [max_logits, V]
  int32_t* last_tokens = nullptr;  // [max_slots]
};

class RankWorker final : public Worker {
 public:
  // Allocates pools (`pool_pages` per group), workspace and tables. The model, device and group
  // outlive the worker.
  static Result<std::unique_ptr<RankWorker>> Create(Device& device, models::Model& model,
                                                    comm::Group& group, const StepLimits& limits,
                                                    std::span<const int32_t> pool_pages,
                                                    SharedStep shared);

  void ShareWith(Worker&) override {}  // Create was given it
  Status WarmUp() override { return OkStatus(); }
  // Each rank fills the results of the rows whose slots it owns. On return every rank has finished
  // the step.
  void Run(const StepPlan& plan, StepResult& result) override;
  void Finish(StepResult&) override {}
  bool UseIdleTime() override { return false; }

 private:
  RankWorker(models::Model& model, comm::Group& group, const StepLimits& limits, SharedStep shared,
             Stream stream, Buffer workspace);
  void CopyPages(const StepPlan& plan);

  models::Model& model_;
  comm::Group& group_;
  SharedStep shared_;
  Stream stream_;
  Workspace workspace_;
  std::vector<Buffer> pools_;           // per cache group
  std::vector<std::byte*> pool_bases_;  // per cache group
  SlotTables tables_;
  StagedStep staged_;
  SlotSampler sampler_;
};

}  // namespace hayate::exec
