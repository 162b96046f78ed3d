#pragma once
// What every family's loader says of a model, and asks of its options.

#include <cstdint>

#include "base/status.h"
#include "models/model.h"
#include "models/registry.h"
#include "weights/checkpoint.h"

namespace hayate::models {

// Positions to load a model for: what the options ask, or all that it was made for.
// kInvalidArgument for more.
Result<int32_t> ContextOf(const LoadOptions& options, int32_t trained_context);

int64_t CountParameters(const weights::Checkpoint& checkpoint);

template <typename Config>
ModelFacts FactsOf(const weights::Checkpoint& checkpoint, const Config& config,
                   int32_t max_context) {
  return {.architecture = config.architecture,
          .vocab_size = config.vocab_size,
          .max_context = max_context,
          .trained_context = config.trained_context,
          .hidden_size = config.hidden_size,
          .num_layers = config.num_layers,
          .eos_ids = config.eos_ids,
          .num_parameters = CountParameters(checkpoint)};
}

}  // namespace hayate::models
