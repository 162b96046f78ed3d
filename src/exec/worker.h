#pragma once
// One rank at work: its device, its shard of the model, its pools, and the carrying out of plans.
// Two kinds: RankWorker computes as it is called (CPU), QueuedWorker queues a step on its device
// and returns (CUDA).

#include <cstdint>
#include <span>

#include "comm/group.h"
#include "comm/rank_layout.h"
#include "comm/token_exchange.h"
#include "core/step_plan.h"
#include "core/step_result.h"
#include "models/model.h"

namespace hayate::exec {

// Where a rank stands in a replica whose ranks do not all see every row.
struct ReplicaPlace {
  comm::RankLayout layout;
  int rank = 0;
  comm::Group* all = nullptr;               // every rank of the replica
  comm::TokenExchange* exchange = nullptr;  // null: no rows travel
  std::span<const comm::ExpertPlacement> placements;
  // [layers, E] or empty: host memory that the device can write.
  std::span<int64_t> expert_counts;
};

class Worker {
 public:
  virtual ~Worker() = default;

  // After all workers of the process were made: the memory of the first rank of the attention
  // group, for what all its ranks write to and read from.
  virtual void ShareWith(Worker& first) = 0;
  // After that, on all ranks at once: one pass over a padding row, so that what is set up at its
  // first use does not meet a request.
  virtual Status WarmUp() = 0;

  // Carries out a step, or queues it. All ranks call it with equal plans, in order; `result` has a
  // row for every plan row and stays in place until it is finished. The rank's thread.
  virtual void Run(const StepPlan& plan, StepResult& result) = 0;
  // Blocks until the oldest step that was run and not finished is done. The first rank of an
  // attention group completes the result's rows of its dp rank; all tell of a failure. Steps finish
  // in the order in which they ran. The engine's thread.
  virtual void Finish(StepResult& result) = 0;
  // Whether Finish would not block. The engine's thread.
  virtual bool Done() = 0;
  // Blocks until every step that was run is done. The rank's thread.
  virtual void AwaitSteps() = 0;
  // Called again and again while no plan waits, until it returns false: work that makes later steps
  // faster, in pieces of some milliseconds. The rank's thread.
  virtual bool UseIdleTime() = 0;
  // From the next step on another model computes, of the same shape; it outlives the worker. With
  // no step in flight, and not for workers with a drafter. The rank's thread.
  virtual void UseModel(models::Model& model) = 0;
};

}  // namespace hayate::exec
