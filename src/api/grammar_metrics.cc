#include "api/grammar_metrics.h"

namespace hayate::api {

GrammarMetrics::GrammarMetrics(obs::Registry& r)
    : total(r.AddCounter({"sglang:num_grammar_total", "Grammars asked for", {}})),
      aborted(r.AddCounter({"sglang:num_grammar_aborted_total", "Grammars refused", {}})),
      timeouts(r.AddCounter(
          {"sglang:num_grammar_timeout_total", "Grammars that took too long to compile", {}})),
      queued(r.AddGauge(
          {"sglang:num_grammar_queue_reqs", "Requests that wait for their grammar", {}})),
      seconds(r.AddHistogram({"sglang:grammar_compilation_time_seconds",
                              "From the request for a grammar to its being there",
                              {}},
                             obs::ExponentialBounds(0.0001, 4.0, 10))) {}

}  // namespace hayate::api
