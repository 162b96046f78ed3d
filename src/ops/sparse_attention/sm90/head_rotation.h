#pragma once
// ops::RotateHeads on a CUDA device.

#include "ops/sparse_attention/head_rotation.h"

namespace hayate::ops::sm90 {

void RotateHeads(Stream stream, const HeadRotationArgs& args);
void SinglePrecisionRopeRows(Stream stream, const SinglePrecisionRopeArgs& args);

}  // namespace hayate::ops::sm90
