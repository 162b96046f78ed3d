#pragma once
// ops::GroupedMatmul on a CUDA device.

#include "ops/grouped_matmul/grouped_matmul.h"

namespace hayate::ops::sm90 {

Status PlaceGroup(Device& device, MatrixGroup& group);
void GroupedMatmul(Stream stream, const GroupedMatmulArgs& args);

}  // namespace hayate::ops::sm90
