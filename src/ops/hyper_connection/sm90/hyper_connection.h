#pragma once
// ops::Hyper… on a CUDA device.

#include "ops/hyper_connection/hyper_connection.h"

namespace hayate::ops::sm90 {

void HyperEnter(Stream stream, Workspace& workspace, const HyperEnterArgs& args);
void HyperLeave(Stream stream, const HyperLeaveArgs& args);
void HyperCollapse(Stream stream, Workspace& workspace, const HyperCollapseArgs& args);
void HyperExpand(Stream stream, TensorView streams, ConstTensorView x);
void HyperAdd(Stream stream, TensorView streams, ConstTensorView x);
void HyperMeans(Stream stream, TensorView out, int64_t row_stride, ConstTensorView streams);
void HyperTakeFirst(Stream stream, TensorView coefficients);
int64_t HyperWorkspaceBytes(int64_t max_tokens);

}  // namespace hayate::ops::sm90
