#pragma once
// The launchers of ops/gather/gather_rows.h.

#include "ops/gather/gather_rows.h"

namespace hayate::ops::sm90 {

void GatherRows(Stream stream, const GatherRowsArgs& args);

}  // namespace hayate::ops::sm90
