#pragma once
// What speculation does, by SGLang's names where it has them. Updated by the engine thread.

#include <cstdint>
#include <string>

#include "obs/metrics.h"

namespace hayate::engine {

struct SpeculationMetrics {
  // Registers everything with the label model_name.
  SpeculationMetrics(obs::Registry& registry, const std::string& model_name);
  // A row that verified num_drafts ≥ 1 drafts was committed; of them num_accepted stood.
  void ObserveVerify(int32_t num_drafts, int32_t num_accepted);

  obs::Counter& verify_calls;     // rows with drafts
  obs::Counter& drafted_tokens;   // in those rows
  obs::Counter& accepted_tokens;  // of those
  obs::Gauge& accept_length;      // tokens a row with drafts brings, moving average
  obs::Gauge& accept_rate;        // accepted ÷ drafted, moving average
  obs::Gauge& chosen_drafts;      // drafts of the last step that could have some
  obs::Histogram& accepted_per_verify;
};

}  // namespace hayate::engine
