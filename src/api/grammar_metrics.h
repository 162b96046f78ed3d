#pragma once
// What compiling grammars costs, by SGLang's names. Any thread.

#include "obs/metrics.h"

namespace hayate::api {

struct GrammarMetrics {
  explicit GrammarMetrics(obs::Registry& registry);

  obs::Counter& total;     // asked for, compiled before or not
  obs::Counter& aborted;   // refused: they cannot be compiled
  obs::Counter& timeouts;  // of these, for their time
  obs::Gauge& queued;      // requests that wait for theirs
  obs::Histogram& seconds;
};

}  // namespace hayate::api
