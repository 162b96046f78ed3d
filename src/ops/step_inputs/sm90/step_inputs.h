#pragma once

#include "ops/step_inputs/step_inputs.h"

namespace hayate::ops::sm90 {

void PrepareStepInputs(Stream stream, const StepInputsArgs& args);

}  // namespace hayate::ops::sm90
