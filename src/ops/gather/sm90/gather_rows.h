#pragma once
// The launchers of ops/gather.

#include "ops/gather/copy_columns.h"
#include "ops/gather/gather_rows.h"

namespace hayate::ops::sm90 {

void GatherRows(Stream stream, const GatherRowsArgs& args);
void CopyColumns(Stream stream, const CopyColumnsArgs& args);

}  // namespace hayate::ops::sm90
