#pragma once
// ops::RotateHeads on a CUDA device.

#include "ops/sparse_attention/head_rotation.h"

namespace hayate::ops::sm90 {

void RotateHeads(Stream stream, const HeadRotationArgs& args);

}  // namespace hayate::ops::sm90
