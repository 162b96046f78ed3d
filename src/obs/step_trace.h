#pragma once
// Steps as a trace that chrome://tracing and ui.perfetto.dev open.

#include <span>
#include <string>

#include "obs/step_log.h"

namespace hayate::obs {

// JSON: what the engine's thread did (plan, wait, commit), when the device computed, and the counts
// of requests and pages, on one time axis in microseconds. `steps` in their order.
std::string StepTraceJson(std::span<const StepRecord> steps);

}  // namespace hayate::obs
