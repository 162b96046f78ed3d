#pragma once

#include "ops/step_inputs/step_inputs.h"

namespace hayate::ops::sm90 {

void FetchInputs(Stream stream, void* to, const void* from, int64_t bytes);
void PrepareStepInputs(Stream stream, const StepInputsArgs& args);

}  // namespace hayate::ops::sm90
