#pragma once
// The launchers of ops/rope/rope.h.

#include "ops/rope/rope.h"

namespace hayate::ops::sm90 {

void Rope(Stream stream, const RopeArgs& args);
void RopeRows(Stream stream, const RopeRowsArgs& args);

}  // namespace hayate::ops::sm90
