#include "ops/step_inputs/step_inputs.h"

#include "ops/step_inputs/sm90/step_inputs.h"
#include "tensor/cuda_build.h"

namespace hayate::ops {

void PrepareStepInputs(Stream stream, const StepInputsArgs& args) {
  if constexpr (kCudaBuild) {
    if (OnCuda(stream)) return sm90::PrepareStepInputs(stream, args);
  }
  for (int32_t i = 0; i < args.num_entries; ++i) {
    const PageEntry& entry = args.entries[i];
    args.tables[entry.table][entry.index] = entry.page;
  }
  for (int32_t i = 0; i < args.num_tokens; ++i) {
    if (args.late_slots[i] >= 0) args.token_ids[i] = args.last_tokens[args.late_slots[i]];
  }
}

}  // namespace hayate::ops
