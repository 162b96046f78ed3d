#pragma once
// The seam between engine and exec: plans in, results out, in order. Two implementations: the
// workers of the devices (exec), and a simulator for tests of sched and engine.

#include <functional>
#include <optional>

#include "core/step_plan.h"
#include "core/step_result.h"

namespace hayate {

class StepExecutor {
 public:
  virtual ~StepExecutor() = default;

  // Queues a step and returns at once. Owner: engine thread. At most kMaxInFlight steps may be in
  // flight. The plan is copied or consumed before the call returns.
  virtual void Submit(const StepPlan& plan) = 0;
  // Blocks until the oldest step in flight is done. Call only with a step in flight. The caller may
  // change the result, and has it until its next call of Submit: its vectors are used again.
  virtual StepResult& WaitOldest() = 0;

  static constexpr int kMaxInFlight = 2;
};

}  // namespace hayate
