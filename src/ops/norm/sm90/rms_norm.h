#pragma once
// The launchers of ops/norm/rms_norm.h.

#include "ops/norm/rms_norm.h"

namespace hayate::ops::sm90 {

void RmsNorm(Stream stream, const RmsNormArgs& args);
void AddRmsNorm(Stream stream, const AddRmsNormArgs& args);

}  // namespace hayate::ops::sm90
