#include "ops/step_inputs/step_inputs.h"

#include <cstring>

#include "base/check.h"
#include "ops/step_inputs/sm90/step_inputs.h"
#include "tensor/cuda_build.h"

namespace hayate::ops {

void FetchInputs(Stream stream, void* to, const void* from, int64_t bytes) {
  DCHECK_EQ(bytes % 16, 0);
  if constexpr (kCudaBuild) {
    if (OnCuda(stream)) return sm90::FetchInputs(stream, to, from, bytes);
  }
  if (bytes > 0) std::memcpy(to, from, static_cast<size_t>(bytes));
}

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
