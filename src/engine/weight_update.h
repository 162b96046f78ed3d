#pragma once
// A change of the model's weights between two steps.

#include <functional>
#include <future>

#include "base/status.h"

namespace hayate::engine {

struct WeightUpdate {
  // Puts the new weights in place of the old ones, or fails and leaves those. Runs on the engine's
  // thread with no step in flight; it may take long.
  std::function<Status()> apply;
  // Requests end as cancelled. Else those that have begun finish with the old weights first, and
  // those that have not wait for the new ones.
  bool abort_all = false;
  // Cached prefixes are the old weights' work: forget them.
  bool flush_cache = true;
};

// Fulfilled by the engine thread once the new weights serve, or why they do not.
struct WeightUpdateCommand {
  WeightUpdate update;
  std::promise<Status> done;
};

}  // namespace hayate::engine
